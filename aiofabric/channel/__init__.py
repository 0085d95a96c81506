"""The byte channel under streams and asyncio transports: frames, credits, flow control."""
