"""A step of serving as a plan: where ranks stand, what each computes, what they send, and what they then hold."""
