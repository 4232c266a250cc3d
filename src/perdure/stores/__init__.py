"""Where runs live. Stores hold bytes; what the bytes mean is the kernel's business."""
