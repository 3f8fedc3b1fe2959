"""Which maps between measures are transformers"""
