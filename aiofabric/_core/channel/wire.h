/* Frames of the byte channel as bytes: channel/frames.py specifies them. */
#ifndef AIOFABRIC_CHANNEL_WIRE_H
#define AIOFABRIC_CHANNEL_WIRE_H

#define FRAME_HEADER 4
#define CREDITS_OF_FRAME 64 /* credits of a frame besides those of its data */

enum frame_kind { KIND_DATA, KIND_GRANT, KIND_END, KIND_CLOSE, KIND_READ };

static inline void put_frame_header(char *to, int kind, long long credits)
{
	to[0] = (char) kind;
	to[1] = (char) (credits & 0xff);
	to[2] = (char) (credits >> 8 & 0xff);
	to[3] = (char) (credits >> 16 & 0xff);
}

#endif
