"""Everything that touches the NVIDIA driver."""
