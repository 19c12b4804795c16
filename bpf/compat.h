/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few kernel types that weir reads, and how it reads them. Fields are
 * relocated against the running kernel's BTF (CO-RE), so the layouts here need
 * only the right names and types, not the right offsets.
 */
#ifndef WEIR_COMPAT_H
#define WEIR_COMPAT_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#define AF_INET 2 /* include/linux/socket.h */
#define AF_INET6 10
#define AF_NETLINK 16
#define NETLINK_NETFILTER 12 /* include/uapi/linux/netlink.h */

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct in6_addr_words {
	__u32 u6_addr32[4];
};

struct in6_addr___kernel {
	struct in6_addr_words in6_u;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct udp_hslot {
	struct hlist_head head;
};

struct udp_table {
	struct udp_hslot *hash;
	unsigned int mask;
};

struct netns_ipv4 {
	struct udp_table *udp_table; /* since 6.2 */
};

struct ns_common {
	unsigned int inum;
};

struct netns_bpf {
	void *run_array[2]; /* NETNS_BPF_SK_LOOKUP is 1 */
};

struct netns_mib {
	void *net_statistics; /* of each CPU */
};

struct net {
	__u32 hash_mix;
	struct netns_ipv4 ipv4;
	struct netns_bpf bpf;
	struct netns_mib mib;
	struct ns_common ns;
};

struct possible_net {
	struct net *net;
};

struct net_device {
	int ifindex;
	struct possible_net nd_net;
	const unsigned char *dev_addr;
	unsigned int real_num_rx_queues;
	unsigned int real_num_tx_queues;
	unsigned short hard_header_len;
	struct netdev_queue *_tx;
	void *rx_handler;
	struct vlan_info *vlan_info; /* none without CONFIG_VLAN_8021Q */
	void *dsa_ptr;		     /* none without CONFIG_NET_DSA */
	void *tcx_egress;	     /* since 6.6 */
	void *miniq_egress;	     /* before */
	void *nf_hooks_egress;	     /* where it is built in */
};

struct napi_struct {
	struct net_device *dev;
	struct task_struct *thread;
	unsigned int napi_id;
};

struct proto {
	union {
		struct udp_table *udp_table; /* before 6.2 */
	} h;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_rcv_saddr;
	__u32 skc_portpair; /* remote and local port */
	__be16 skc_dport;
	__u16 skc_num; /* the local port, host order */
	unsigned short skc_family;
	volatile unsigned char skc_state;
	int skc_bound_dev_if;
	unsigned char skc_reuseport : 1;
	unsigned char skc_ipv6only : 1;
	struct proto *skc_prot;
	struct possible_net skc_net;
	struct in6_addr___kernel skc_v6_rcv_saddr;
	struct hlist_node skc_node;
	atomic64_t skc_cookie;
};

struct sock_reuseport {
	__u16 num_socks;
	__u16 incoming_cpu; /* since 6.2: sockets that prefer a CPU */
	__u32 synq_overflow_ts;
	void *prog;
	struct sock *socks[];
};

struct sk_buff_head {
	struct sk_buff *next;
	struct sk_buff *prev;
	__u32 qlen;
};

struct bpf_prog_aux {
	__u32 id;
	__u32 used_map_cnt;
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct sk_filter {
	struct bpf_prog *prog;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	int sk_rcvbuf;
	struct sk_filter *sk_filter;
	void *sk_user_data;
	struct sock_reuseport *sk_reuseport_cb;
	__u16 sk_protocol;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
};

struct netlink_sock {
	struct sock sk;
	__u32 portid;
	unsigned long state;
};

struct request_sock_queue {
	atomic_t qlen;
};

struct inet_connection_sock {
	struct request_sock_queue icsk_accept_queue;
};

struct tcp_options_received {
	int ts_recent_stamp; /* of a listener: its group's synq_overflow_ts */
	__u16 user_mss;
};

struct tcp_sock {
	struct tcp_options_received rx_opt;
	__u32 window_clamp;
	bool is_mptcp;
	void *md5sig_info;
	void *ao_info;
};

struct ip_mc_socklist {
	struct ip_mc_socklist *next_rcu;
	void *sflist; /* the senders that are chosen, or left out */
};

struct ipv6_mc_socklist {
	struct ipv6_mc_socklist *next;
	void *sflist;
};

struct ipv6_pinfo {
	__s16 hop_limit : 9; /* a whole one since 6.7 */
	__u8 min_hopcount;
	__u8 tclass;
	struct ipv6_mc_socklist *ipv6_mc_list;
	void *opt;
};

struct inet_sock {
	struct ipv6_pinfo *pinet6;
	__s16 uc_ttl;
	__u8 tos;
	__u8 min_ttl;
	struct ip_mc_socklist *mc_list;
};

struct udp_sock {
	__u8 encap_type;
	struct sk_buff_head reader_queue;
	int forward_deficit;
	void *udp_prod_queue;	 /* since 6.18 */
	unsigned long udp_flags; /* since 6.7 */
};

struct udp_sock___before_6_7 {
	unsigned char gro_enabled : 1;
};

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	unsigned long _skb_refdst;
	unsigned int len;
	unsigned int truesize;
	unsigned char *head;
	unsigned char *data;
	unsigned int end;	/* an offset from head, on 64-bit kernels */
	__u16 transport_header; /* likewise */
	__u16 network_header;
	int skb_iif;
	__u8 pkt_type : 3;
	__u8 ip_summed : 2;
	unsigned int data_len;
	char cb[48];
	__be16 protocol;
	__be16 vlan_proto;
	__u16 queue_mapping;
};

/* Relocated: kernels insert before them. */
enum skb_drop_reason {
	SKB_DROP_REASON_SOCKET_RCVBUFF = 6,
	SKB_DROP_REASON_QDISC_DROP = 41,
};

struct inet_skb_parm {
	__u16 frag_max_size;
};

struct inet6_skb_parm {
	__u16 frag_max_size;
};

struct seq_file;

/* What an iterator writes to. */
struct bpf_iter_meta {
	struct seq_file *seq;
};

struct skb_shared_info {
	__u8 nr_frags;
	unsigned short gso_size;
	unsigned short gso_segs;
	unsigned int gso_type;
	struct sk_buff *frag_list;
};

#pragma clang attribute pop

/* Kernel 6.2: kernel/bpf/helpers.c. Reads through it cannot fault. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/* Kernel 6.2, too: the skb behind a tc program's context. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

#define has_kern_ctx() (!!bpf_cast_to_kern_ctx)

#define has_rdonly_cast() (!!bpf_rdonly_cast)

/* An address in the kernel, as a pointer to a type that can be read. */
#define kernel_cast(address, type)                                             \
	({                                                                     \
		type *cast = (type *)(address);                                \
		if (has_rdonly_cast())                                         \
			cast = bpf_rdonly_cast((const void *)(address),        \
					       bpf_core_type_id_kernel(type)); \
		cast;                                                          \
	})

/*
 * A field of what kernel_cast() returned. Before 6.2 a load through it is not
 * allowed, so it is copied: slower, and on such kernels only.
 */
#define kernel_read(pointer, field)                          \
	({                                                   \
		typeof(({ (pointer)->field; })) value;       \
		if (has_rdonly_cast())                       \
			value = (pointer)->field;            \
		else                                         \
			bpf_core_read(&value, sizeof(value), \
				      &(pointer)->field);    \
		value;                                       \
	})

/* The same of a bitfield. */
#define kernel_bitfield(pointer, field)                             \
	(has_rdonly_cast() ? BPF_CORE_READ_BITFIELD(pointer, field) \
			   : BPF_CORE_READ_BITFIELD_PROBED(pointer, field))

/*
 * A pointer as the number that it is, to be computed with, compared and handed
 * on. The verifier allows no arithmetic on pointers to kernel objects and none
 * across global functions, but forgets what a value was whose byte order is
 * converted: here to the one that it has, which is no instruction.
 */
static __always_inline __u64 kernel_address_of(const void *object)
{
	__u64 address = (__u64)object;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	asm volatile("%0 = le64 %0" : "+r"(address));
#else
	asm volatile("%0 = be64 %0" : "+r"(address));
#endif
	return address;
}

/* The same of a field that is a pointer. */
#define kernel_address(pointer, field) \
	kernel_address_of((const void *)kernel_read(pointer, field))

#endif /* WEIR_COMPAT_H */
