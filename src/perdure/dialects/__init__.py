"""The workflow languages. Each knows the kernel and the expressions; none knows another one."""
