"""What a worker is handed, named here for those who hold providers and assignments."""

from perdure.kernel.work import Assignment, Claim, Port

__all__ = ["Assignment", "Claim", "Port"]
