"""The workflow languages: pure, on top of kernel, documents and expressions. No language imports another one."""
