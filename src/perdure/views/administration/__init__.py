"""What operators of stores and servers ask: tokens, the audit log, metrics, worker pools, retention."""
