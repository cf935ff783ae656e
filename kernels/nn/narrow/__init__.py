"""Numbers of 16 bits, bfloat16 and float16: to float32 and back."""
