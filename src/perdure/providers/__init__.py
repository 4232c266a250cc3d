"""What a task may call. A provider sees its task's context, never an execution."""
