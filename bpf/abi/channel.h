/* SPDX-License-Identifier: GPL-2.0-only */
/* Channels, and what each CPU remembers of the destinations of packets. */
#ifndef WEIR_ABI_CHANNEL_H
#define WEIR_ABI_CHANNEL_H

#include <linux/types.h>

/* Per CPU, indexed by enum weir_reason. */
struct weir_counter {
	__u64 packets;
	__u64 bytes;
};

/* What becomes of a channel's packets. */
enum weir_seen {
	WEIR_SEEN_PASSED,
	WEIR_SEEN_FULL, /* discarded: its queue was full, or kept for others */
	WEIR_SEEN_SHED, /* discarded: it was over its share of the CPU */
	WEIR_SEEN_COUNT,
};

/* How many destinations each CPU keeps (a power of two). */
#define WEIR_DESTINATIONS_BITS 10
#define WEIR_DESTINATIONS (1 << WEIR_DESTINATIONS_BITS)

/* How a destination is found. */
enum weir_target {
	WEIR_TARGET_NONE,
	WEIR_TARGET_UDP,
	WEIR_TARGET_UDP_GROUP, /* multicast, broadcast */
	WEIR_TARGET_TCP_SYN,
	WEIR_TARGET_TCP,       /* segments other than a SYN... */
	WEIR_TARGET_TCP_STRAY, /* ...that belong to no connection */
	WEIR_TARGET_FORWARD,
};

/*
 * What one CPU knows of a destination (address, port), so that the next packets
 * to it cost no lookup. Three cache lines; the first two serve a packet whose
 * answer is known.
 */
struct weir_destination {
	__u32 address[4]; /* network order; IPv4: the first word */
	enum weir_family family;
	enum weir_target target; /* none: unused */
	__be16 port_be;
	__u16 account; /* where its packets are charged, on this CPU */
	__u32 left;    /* packets that the answer still holds for */
	__u64 moment;  /* when it was found: in which NAPI poll, and tick */
	__u32 reason;  /* enum weir_reason */
	/* A full queue refuses packets at least this long (IP)... */
	__u32 full_from;
	/* What was seen of the channel below here. */
	struct weir_counter seen[WEIR_SEEN_COUNT];
	__u32 truesize; /* ...or that are charged as much */
	/* The channel: its kind, and what its key has beside the address. */
	__u32 egress_ifindex;
	__u16 channel_port;
	__u8 kind;     /* enum weir_kind */
	__u8 screened; /* 1: what is admitted goes to a screen */
	/* If all this is of one peer's packets only: his port. */
	__u16 connected;
	__be16 peer_port_be;
	/*
	 * If one socket alone, unconnected, can be given these packets: the
	 * kernel's struct sock and the bucket of its table that holds no other.
	 * Of SYNs: the listener that was full at this moment.
	 */
	__u64 sock;
	__u64 bucket;
	__u32 sock_tag;	  /* what the socket is bound and connected to */
	__u32 generation; /* of the interface's addresses */
	/* For how many more packets of this poll the socket is believed to be
	 * what it was, and only its queue is looked at. */
	__u32 alone_left;
	__u32 shed; /* of seen, those that its account knows of */
	/* Packets that the answer held for at first, if its queue is to be told
	 * of them; and how long (IP), so that all are charged the same. */
	__u32 lent;
	__u32 lent_len;
	__u32 peer[4];	/* as peer_port_be... */
	__u32 flowinfo; /* ...and of what is forwarded, as struct flow's */
	/*
	 * Of TCP: until when each segment is looked for, as one of no
	 * connection has come (CLOCK_MONOTONIC), and until which poll no
	 * listener is, as there was none.
	 */
	__u64 stray_until_ns;
	__u64 no_listener_until;
};

/* For how many packets an answer holds. */
#define WEIR_REMEMBERED 64

/* How many channels with an address of their own are counted. */
#define WEIR_CHANNELS 4096

/* A channel's identity; fields that its kind does not have are 0. */
struct weir_channel_key {
	__u32 address[4]; /* local; network order; IPv4: the first word */
	__u32 egress_ifindex;
	__u16 port;  /* local; of WEIR_KIND_TCP_PEER the peer's */
	__u8 family; /* enum weir_family */
	__u8 kind;   /* enum weir_kind */
};

/* Per CPU. */
struct weir_channel {
	struct weir_counter seen[WEIR_SEEN_COUNT];
};

/* How many fragmented datagrams are followed at once. */
#define WEIR_DATAGRAMS 4096

struct weir_datagram_key {
	__u8 source[16]; /* IPv4: the first four bytes */
	__u8 destination[16];
	__u32 id_be;
	__u8 family;   /* enum weir_family */
	__u8 protocol; /* IPv4 only: IPv6's later fragments need not agree */
	__u16 pad;
};

/* What became of the fragments that came first. */
struct weir_datagram {
	__u64 until_ns; /* CLOCK_MONOTONIC */
	__u32 reason;	/* enum weir_reason */
	__u32 pad;
};

#endif /* WEIR_ABI_CHANNEL_H */
