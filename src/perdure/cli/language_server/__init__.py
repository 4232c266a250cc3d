"""`perdure lsp`: a language server, over standard input and output."""
