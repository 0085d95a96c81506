"""Layer 5: the byte channel below streams and asyncio transports, with frames, credits and flow control."""
