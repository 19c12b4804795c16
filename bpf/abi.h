/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every type that crosses the boundary between the kernel half and user space.
 *
 * Rust's copies are generated from the loaded objects' BTF (libbpf-cargo), so
 * nothing here is declared a second time. Include <linux/types.h> users only:
 * fixed-width types, no pointers, no implicit padding.
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#include <linux/types.h>

/* How many sockets' queue states are remembered at once (a power of two). */
#define WEIR_QUEUE_SLOTS 4096

/* A bit for each port, by 64. */
#define WEIR_PORT_WORDS 1024

/* How many addresses of one family an interface may have under the gate. */
#define WEIR_LOCAL_ADDRESSES 1024

/* How many flows one traffic generator mixes. */
#define WEIR_TRAFFIC_FLOWS 4

/* Longest Ethernet + IP + transport header the generator writes (IPv6, TCP). */
#define WEIR_TRAFFIC_HEADER_LEN 74

/* Longest IPv4 options (RFC 791, 3.1). */
#define WEIR_TRAFFIC_OPTIONS_LEN 40

/* Longest frame that user space gives as it is to be sent. */
#define WEIR_TRAFFIC_RAW_LEN 256

/* Lengths that a flow's packets are drawn from: a random byte names one. */
#define WEIR_TRAFFIC_LENGTHS 256

/* VLAN tags that the parser looks behind. */
#define WEIR_VLAN_TAGS 2

/* IPv6 extension headers that the parser looks behind, fragment included. */
#define WEIR_IPV6_EXTENSIONS 6

enum weir_family {
	WEIR_FAMILY_NONE,
	WEIR_FAMILY_IPV4,
	WEIR_FAMILY_IPV6,
};

enum weir_fragment {
	WEIR_FRAGMENT_NONE, /* whole, or an IPv6 atomic fragment (RFC 6946) */
	WEIR_FRAGMENT_FIRST,
	WEIR_FRAGMENT_LATER,
};

/* How far the parser got. */
enum weir_parse {
	WEIR_PARSE_UDP,
	WEIR_PARSE_TCP,
	WEIR_PARSE_ICMP,
	WEIR_PARSE_ICMPV6,
	WEIR_PARSE_IGMP,
	WEIR_PARSE_OTHER_PROTOCOL, /* IP, but none of the above */
	WEIR_PARSE_LATER_FRAGMENT, /* not the first: no transport header */
	WEIR_PARSE_IPV6_CHAIN,	   /* more extension headers than that */
	WEIR_PARSE_ARP,
	WEIR_PARSE_OTHER_ETHERTYPE,
	WEIR_PARSE_MALFORMED, /* cut short, or contradicts itself */
	/* Inside the kernel half only: the IP header is done;... */
	WEIR_PARSE_TRANSPORT,
	/* ...and this is not for the short way. */
	WEIR_PARSE_UNUSUAL,
};

/* What the parser made of one packet: for tests and for `weir explain`. */
struct weir_parsed {
	__u32 parse;	 /* enum weir_parse; if malformed, the rest is void */
	__u16 ethertype; /* after the VLAN tags */
	__u8 vlan_tags;
	__u8 family;   /* enum weir_family; if none, the rest is void */
	__u8 protocol; /* of the transport header */
	__u8 fragment; /* enum weir_fragment */
	/* IPv4: an option is LSRR or SSRR; IPv6: a routing header has segments
	 * left. */
	__u8 routed;
	__u8 tcp_flags;	   /* FIN 1, SYN 2, RST 4, PSH 8, ACK 16 ... */
	__u32 left;	   /* IP payload bytes from the transport header on */
	__u32 fragment_id; /* if a fragment; host order, as are the ports */
	__u16 source_port; /* UDP and TCP; else 0 */
	__u16 destination_port;
	__u16 udp_len; /* as the UDP header gives it */
	__u8 icmp_type;
	__u8 pad;
	__u8 source[16]; /* IPv4: the first four bytes */
	__u8 destination[16];
};

/* One interface under the gate. Written by the daemon, read per packet. */
struct weir_interface {
	__be16 mac[3];
	__u8 policy_off;  /* 1: count and pass everything */
	__u8 diverted;	  /* 1: something may take packets elsewhere: pass */
	__u32 generation; /* counts changes of the addresses */
	__u32 ifindex;
	__u32 no_polls; /* 1: its driver has no NAPI: each packet is a poll */
	__u32 limited;	/* 1: softirqs may not take more than that from... */
	__u32 input_share; /* ...processes, in parts of WEIR_SHARE_ONE */
	__u32 selective;   /* 1: heavy sources are shed before light ones */
	__u32 charges;	   /* 1 + its row of charges; 0: none */
	__u32 shadow;	   /* 1: decide and count, and pass everything */
	/* What is written here is believed until then, CLOCK_MONOTONIC; 0: for
	 * ever. */
	__u64 fresh_until_ns;
};

/* Per CPU, indexed by enum weir_reason. */
struct weir_counter {
	__u64 packets;
	__u64 bytes;
};

/* What the kernel itself does with an interface's packets before IP sees them.
 */
struct weir_device {
	__u64 rx_handler;   /* address of the function that takes them; or 0 */
	__u32 vlan_devices; /* VLAN interfaces on top, in any namespace */
	__u32 ifindex;	    /* of the interface that was looked at */
};

struct weir_ipv6_address {
	__u8 octets[16];
};

/* What an address in the gate's tables is to this host. */
enum weir_address_kind {
	WEIR_ADDRESS_NONE,
	WEIR_ADDRESS_LOCAL,
	WEIR_ADDRESS_BROADCAST,
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
	__u8 kind; /* enum weir_kind */
	__u8 pad;
	/* If all this is of one peer's packets only: his port. */
	__u16 connected;
	__be16 peer_port_be;
	/*
	 * If one socket alone, unconnected, can be given these packets: the
	 * kernel's struct sock and the bucket of its table that holds no other.
	 */
	__u64 sock;
	__u64 bucket;
	__u32 sock_tag;	  /* what the socket is bound and connected to */
	__u32 generation; /* of the interface's addresses */
	/* For how many more packets of this poll the socket is believed to be
	 * what it was, and only its queue is looked at. */
	__u32 alone_left;
	__u32 peer[4]; /* as peer_port_be */
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

/* What became of one packet: for `weir explain`. */
struct weir_explanation {
	struct weir_parsed parsed;
	__u32 reason;	      /* enum weir_reason */
	__u32 egress_ifindex; /* of a forwarded packet; else void */
	/* As in parsed, with the types that give Rust the names. */
	enum weir_parse parse;
	enum weir_fragment fragment;
};

/*
 * What is known about one UDP socket's receive queue beyond what the socket
 * itself says. One cache line.
 */
struct weir_queue_slot {
	/* The kernel's struct sock *, mixed with the group that its packets
	 * are sent to, if any: only ever compared. */
	__u64 sock;
	__u64 poll; /* the NAPI poll in which the gate last looked */
	/* Bytes charged to the queue that in_flight has been set off against.
	 */
	__u32 charged_seen;
	/* Bytes admitted in this poll that have not been charged yet. */
	__u32 in_flight;
	__u64 head; /* the first packet in it when the last was admitted */
	__u64 doubted_ns; /* when a packet was last seen not to arrive, or 0 */
	__u32 arrives;	  /* since then all of a poll were seen to arrive */
	__u32 pad;
};

/* How many interfaces with a gate are taught what packets are charged. */
#define WEIR_CHARGE_ROWS 64
/* Classes of lengths: of 16 bytes, and from 2,048 on of 2,048. */
#define WEIR_CHARGE_CLASSES 160

/* An interface, by its network namespace's inode number and its own. */
struct weir_charge_key {
	__u32 netns;
	__u32 ifindex;
};

/* What the kernel charges for packets of one class of lengths. */
struct weir_charge {
	__u64 learned_ns; /* CLOCK_MONOTONIC */
	__u32 truesize;	  /* bytes: the smallest of late */
	__u32 from;	  /* the least IP length of the class */
};

/* The same of an interface's packets, and of one fragment of several. */
struct weir_charges {
	__u64 confirmed_ns; /* when the kernel last refused any */
	/* The NAPI poll in which the kernel was asked again; 0: not yet. */
	__u64 asked_poll;
	__u32 asked_looks; /* since then */
	__u32 condensed; /* what is taken may be charged less: skb_condense() */
	struct weir_charge least[2]; /* of the shortest class that is known */
	struct weir_charge of[2 * WEIR_CHARGE_CLASSES];
};

/* How many contested queues are followed at once (a power of two). */
#define WEIR_CONTESTS 64

/* The sketch of who sends to one: rows, and places in each (a power of two). */
#define WEIR_SOURCE_ROWS 4
#define WEIR_SOURCE_COLUMNS_BITS 10
#define WEIR_SOURCE_COLUMNS (1 << WEIR_SOURCE_COLUMNS_BITS)

/* What was admitted from the sources that share a place. */
struct weir_source_count {
	__u16 era; /* halved with each that ends */
	__u16 packets;
};

/*
 * A UDP socket's queue that was full of late, and who was admitted to it: all
 * counts are of packets, and halved when an era ends.
 */
struct weir_contest {
	__u64 sock;	/* the kernel's struct sock *, only ever compared */
	__u64 until_ns; /* CLOCK_MONOTONIC */
	__u32 truesize; /* bytes charged for a packet, as last known */
	__u32 era;
	__u32 admitted; /* all, but for what the era's end has halved */
	__u32 heaviest; /* of the source that most were admitted from */
	__u32 lighter;	/* from sources with clearly fewer than that... */
	__u32 unknown;	/* ...and from those that were hardly seen before */
	struct weir_source_count
		counts[WEIR_SOURCE_ROWS * WEIR_SOURCE_COLUMNS]; /* row by row */
};

/*
 * How many channels each CPU charges one by one (a power of two). The first
 * places are the kinds' own, for all that have none.
 */
#define WEIR_ACCOUNTS 64

/* How many channels one poll's time is shared out among; others go without. */
#define WEIR_TOUCHES 8

/* The whole of a CPU, as a limit. */
#define WEIR_LIMIT_ONE 1024

/*
 * What the packets of one channel that were admitted on one CPU have cost
 * there, and may. All times in nanoseconds. Two cache lines.
 */
struct weir_account {
	struct weir_channel_key key;
	__u64 poll;	 /* the last in which one was admitted */
	__u32 in_poll;	 /* how many are not charged yet */
	__u32 shed;	 /* how often it was found over its limit; grows */
	__u64 used_ns;	 /* CLOCK_MONOTONIC, of that poll */
	__s64 tokens_ns; /* what may be used at once; below 0: owed */
	/* Ever; of kinds' own places those of channels that had a place, too.
	 */
	__u64 charged_ns;
	__u64 packets;
	/* Of late: their cost is one by the other. */
	__u64 cost_ns;
	__u64 cost_packets;
	__u64 filled_ns; /* when tokens were last added, CLOCK_MONOTONIC */
	/* Set by user space: a limit, and until when it holds. */
	__u64 limited_until_ns;
	__u32 limit; /* of WEIR_LIMIT_ONE */
	__u32 pad[5];
};

/* Per CPU: the NAPI poll that is running. */
struct weir_poll {
	__u64 number; /* polls that have ended */
	__u64 moment; /* when now_ns was read: number, and ticks */
	__u64 now_ns; /* CLOCK_MONOTONIC */
	/* The packets that the gate has discarded on this CPU... */
	__u64 discarded;
	/* ...for which channel last; 0: none of late... */
	__u64 full_id;
	/* ...and those of other channels that it has admitted meanwhile. */
	__u64 beside;
	/* As the governor's programs last saw them, and when. */
	__u64 discarded_seen;
	__u64 discarded_rung; /* as of the last poll's end */
	__u64 beside_seen;
	__u64 full_ns;	/* CLOCK_MONOTONIC */
	__u64 ended_ns; /* when the meter last saw one end, CLOCK_MONOTONIC */
	/* The accounts of which packets were admitted, in this poll. */
	__u64 touched; /* 1 + the poll's number */
	__u32 touches;
	__u32 pad;
	__u32 touch[WEIR_TOUCHES];
};

/* Places for causes: a power of two, and room to spare. */
#define WEIR_CAUSE_PLACES 8

/* Times of CLOCK_MONOTONIC. */
struct weir_alarm {
	__u32 asleep; /* set by user space, cleared by whoever rings */
	__u32 pad;
	__u64 rung_ns; /* when something was last wrong, or a little before */
	__u64 watched_until_ns; /* set by user space: somebody reads counters */
	__u64 woken[WEIR_CAUSE_PLACES]; /* how often, by cause */
};

/* The whole of a CPU's time. */
#define WEIR_SHARE_ONE 1000

/*
 * More packets than one poll takes. So many with no end of a poll between them:
 * whoever saw them end is gone, and nothing ends a period any more.
 */
#define WEIR_UNMARKED_MAX 1024

/*
 * No poll takes so long by itself (64 packets): the hypervisor or an interrupt
 * had the CPU, and the packets are not to pay for that.
 */
#define WEIR_POLL_NS_MAX 1000000ULL

/* Whose time a receive softirq runs in. */
enum weir_softirq_time {
	WEIR_SOFTIRQ_SPARE, /* nobody's: no process wants the CPU */
	WEIR_SOFTIRQ_OWN,   /* its sender's: of packets sent on this CPU */
	WEIR_SOFTIRQ_TAKEN, /* another process's */
};

/*
 * Per CPU: what receive softirqs take from processes. All times in nanoseconds.
 * One cache line.
 */
struct weir_softirq {
	/* The clock at the last mark (it began, or a poll in it ended); 0: no
	 * receive softirq runs. */
	__u64 marked_ns;
	__u64 period_began_ns;
	__u64 period_taken_ns;	     /* in this period */
	__u64 used_ns;		     /* ever */
	__u64 taken_ns;		     /* ever */
	enum weir_softirq_time time; /* since the last mark */
	/* period_taken_ns, in parts of WEIR_SHARE_ONE of a period; 0 where
	 * nothing is taken. */
	__u32 share;
	__u32 unmarked; /* packets since then for which share was too much */
	__u32 limit;	/* as share; the one that it was too much for; or 0 */
	__u16 in_interrupt;
	__u16 raised;	      /* the next one was raised in an interrupt */
	__u16 from_interrupt; /* this one was */
	__u16 pad;
};

/* How many NAPI threads are governed at once. */
#define WEIR_INPUTS 64

/* How many processes are known to be woken by network input. */
#define WEIR_CONSUMERS 4096

/*
 * So many polls in a row that took a whole budget (64): about as much waited as
 * a small ring holds (veth: 256), so it may have overflowed.
 */
#define WEIR_OVERRUN_POLLS 3
/*
 * Where no packet was discarded, so many: all that a small ring holds. A few
 * full polls, with waits between them, are also what clients make that wait for
 * answers.
 */
#define WEIR_CONTENDED_POLLS 4

/* What a CPU is at. */
enum weir_running {
	WEIR_RUNNING_IDLE,
	WEIR_RUNNING_INPUT,    /* a governed NAPI thread */
	WEIR_RUNNING_CONSUMER, /* a process that input wakes */
	WEIR_RUNNING_STRANGER, /* any other, or a thread of the kernel's */
	WEIR_RUNNING_HOST,     /* its real-time threads, and weir itself */
	WEIR_RUNNING_LEFTOVER, /* whoever is to run when nobody else wants to */
};

/*
 * What one CPU's time went to: written on that CPU alone but for the counts.
 * Two cache lines.
 */
struct weir_cpu {
	__u64 since_ns; /* when what runs now began to, CLOCK_MONOTONIC */
	__u64 stranger_ns;
	enum weir_running running;
	__u32 input;	 /* which, if it is one */
	__u32 inputs;	 /* those that last ran here */
	__s32 waiting;	 /* of them, those that wait for the CPU */
	__s32 consumers; /* runnable here, or running */
	__s32 light;	 /* likewise: processes that hardly weigh anything */
	__u32 wanted;	 /* strangers that were runnable at the last switch */
	__u32 crowded;	 /* more than one is runnable */
	__u64 crowded_ns;
	__u64 idle_ns;
	__u32 receives; /* who runs has taken packets from a socket */
	__u32 pad;
	__u64 pad_line[6];
};

/*
 * One governed NAPI thread. All times in nanoseconds; counters only grow.
 */
struct weir_input {
	__u64 ran_ns;
	__u64 taken_ns;	 /* of it, while a stranger waited for the CPU */
	__u64 intruded;	 /* how often that began */
	__u64 woken;	 /* of it, by a wake-up, not as its turn came */
	__u64 wasted_ns; /* of it, for packets that were discarded */
	__u64 held_ns;	 /* waited while a stranger ran */
	__u64 packets;
	__u64 discarded; /* of them */
	__u64 beside;	 /* packets of other channels, admitted meanwhile */
	__u64 polled_ns; /* when its last poll ended, or it began to run */
	__u64 stranger_then_ns; /* cpu->stranger_ns as it began to wait */
	/* What polls that discarded everything took of late, and discarded. */
	__u64 vain_ns;
	__u64 vain_packets;
	__u64 carried_ns; /* from its last poll's end until it last stopped */
	__u32 cpu;
	__u32 waiting;
	__u32 home; /* the CPU among whose inputs it is, once it has run */
	__u32 full_polls; /* in a row */
	__u32 overruns;	  /* polls before which the ring may have been full */
	__u32 wakes;	  /* it has been woken and has not run since */
	__u32 contended; /* of overruns, those of several channels that go on */
	__u32 pad;
};

/* What a NAPI thread ran and waited, for a governor that sleeps. */
struct weir_strain {
	/* Set by user space. */
	__u64 wait_ns; /* a turn may be waited for so long; 0: do not compare */
	__u64 share;   /* of WEIR_SHARE_ONE: input's of the CPU */
	/* At the last comparison. */
	__u64 seen_ns;
	__u64 ran_ns;
	__u64 waited_ns;
	__u64 turns;
	__u64 suspected_ns; /* when waits were last told of */
	__u32 full_polls;   /* in a row */
	__u32 overruns;	    /* since then */
	/* How often was it found to wait long, or to be over its share? */
	__u32 waits;
	__u32 over;
};

/* Socket lookups in one run of a program that measures them. */
#define WEIR_LOOKUPS_PER_RUN 64

/* What is looked up: an IPv4 address is in an address's first 4 bytes. */
struct weir_lookup_tuple {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port_be;
	__be16 destination_port_be;
};

/*
 * Full polls are told apart by ns per packet up to here; longer ones were
 * interrupted for long.
 */
#define WEIR_POLL_NS_PER_PACKET_MAX 4096

/* Polls of one NAPI instance, as the lab's gate-cost counts them. */
struct weir_poll_cost {
	__u64 polls;
	__u64 packets;
	/* Of polls that took a whole budget right after one that did... */
	__u64 full_polls;
	__u64 full_packets;
	__u64 full_ns;
	/* ...without those that were interrupted for long: as many. */
	__u64 interrupted;
	/* full_polls by whole ns per packet. */
	__u32 histogram[WEIR_POLL_NS_PER_PACKET_MAX];
};

/* What a generated packet is made of. */
enum weir_traffic_kind {
	WEIR_TRAFFIC_UDP4,
	WEIR_TRAFFIC_TCP4,
	WEIR_TRAFFIC_UDP6,
	WEIR_TRAFFIC_TCP6,
	WEIR_TRAFFIC_ECHO4,
	WEIR_TRAFFIC_ECHO6,
	WEIR_TRAFFIC_FRAGMENT4,
	WEIR_TRAFFIC_FRAGMENT6,
	WEIR_TRAFFIC_RAW, /* as user space gave it: see starts[] */
};

/*
 * At the start of every generated UDP payload that has room for it: 14 bytes,
 * the payload of LRP's figure 3.
 */
struct weir_stamp {
	__u64 sent_ns; /* CLOCK_MONOTONIC */
	__u32 sequence;
	__u16 flow;
} __attribute__((packed));

/* One flow of the generator; user space writes it while the flow is stopped. */
struct weir_traffic_flow {
	/* Nanoseconds between bursts, 16 fractional bits; 0: never pause. */
	__u64 interval_q16;
	/* A multiple of it: bursts that are later than that are not sent. */
	__u64 catch_up_q16;
	__u64 next_q16; /* when the next burst is due, since start_ns */
	__u64 sent;
	/* Packets that fell due while the generator could not run. */
	__u64 missed;
	__u32 enabled;
	enum weir_traffic_kind kind;
	/* Sum of the checksummed words that do not change, host order. */
	__u32 transport_sum;
	__u32 ip_sum;
	/*
	 * Random bits of the source address, host order; of an IPv4 fragment,
	 * those that count on where its identification wraps.
	 */
	__u32 source_mask;
	/* If not 0: so many source addresses, from the header's upwards. */
	__u32 source_count;
	/*
	 * A packet is shorter than the flow's longest by a random number below
	 * this; 0: by one of cuts[].
	 */
	__u32 cut_span;
	__u16 port_mask; /* random bits of the source port, host order */
	__u16 destination_port_mask; /* ...and of the destination port */
	__u16 burst;		     /* packets that are due together */
	__u16 burst_left;	     /* of them, those still to be sent */
	__u16 surplus; /* bytes from the flow's longest frame to the generator's
			*/
	__u8 has_stamp;
	__u8 option_words; /* of 4 bytes, between the IPv4 and UDP headers */
	__u8 header[WEIR_TRAFFIC_HEADER_LEN]; /* without those options */
	__u8 options[WEIR_TRAFFIC_OPTIONS_LEN];
	__u8 pad[6];
};

/* A process, told from a later one with its number. */
struct weir_process_id {
	__u64 started; /* CLOCK_MONOTONIC, ns */
	__u32 pid;     /* in the reader's pid namespace */
	__u32 pad;
};

/* A process has a socket open. */
struct weir_holder {
	struct weir_process_id process;
	__u64 inode; /* the socket's */
};

struct weir_process {
	struct weir_process_id process;
	/* The address of the set of control groups that it is in: it has
	 * another one in others. */
	__u64 cgroups;
	__u64 cgroup_id; /* of the group in cgroup v2 */
	__u32 uid;	 /* effective */
	__s32 nice;
	__u32 policy; /* SCHED_* */
	char comm[16];
	__u32 pad;
};

/* How many sockets can be lazy at once. */
#define WEIR_LAZY_SOCKETS 4096

/* Which UDP ports some lazy socket is bound to. */
struct weir_lazy {
	__u32 sockets; /* 0: none is, and the gate looks no further */
	/* 1: what the kernel does to packets first would be bypassed: all go to
	 * the kernel. */
	__u32 held;
	__u64 ports[WEIR_PORT_WORDS];
};

/* What else is known of a packet on a lazy socket's ring. */
enum weir_lazy_flag {
	/* Its checksum was verified before, or its sender is this machine. */
	WEIR_LAZY_CHECKED = 1,
	/* Its checksum may be of the pseudo header only: as the last, but the
	 * driver does not tell. */
	WEIR_LAZY_MAY_BE_PARTIAL = 2,
};

/*
 * Ahead of each packet on a lazy socket's ring, which is followed by the packet
 * from its IP header on. The record may be longer than that. weir-socket's
 * record.rs reads it.
 */
struct weir_lazy_record {
	__u64 at_ns; /* CLOCK_MONOTONIC, of the NAPI poll's first packet */
	__u32 len;   /* of the packet that follows */
	__u32 ifindex;
	__u16 gso_size; /* payload bytes of each packet merged; 0: one packet */
	__u8 flags;	/* enum weir_lazy_flag */
	__u8 version;	/* WEIR_LAZY_VERSION */
	__u32 pad;
};

#define WEIR_LAZY_VERSION 1

#endif /* WEIR_ABI_H */
