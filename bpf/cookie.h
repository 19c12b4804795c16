/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SYN cookies at the gate: a request past its listener's queue, which the
 * kernel would answer by cookie (net/ipv4/syncookies.c), is answered here while
 * the CPU is short, before an skb exists, and so for a fraction of the cost.
 * The kernel recognises the cookie when the client comes back with it.
 *
 * The kernel keeps a client's window scale, SACK and ECN in timestamps, whose
 * offset is its secret; these cookies keep the MSS alone, as the kernel's do of
 * a client without timestamps.
 */
#ifndef WEIR_COOKIE_H
#define WEIR_COOKIE_H

#include "account.h"
#include "checksum.h"
#include "forward_ask.h"
#include "lookup.h"
#include "packet.h"
#include "parse.h"
#include "tcp.h"
#include "translation.h"
#include "unfinished.h"
#include "workspace.h"

#define TCP_OPTION_END 0
#define TCP_OPTION_NOOP 1
#define TCP_OPTION_MSS 2
#define TCP_OPTION_MPTCP 30
#define MPTCP_JOIN 1
/* Of a header: no option is shorter than a byte. */
#define TCP_OPTIONS_MAX 40
#define IPV4_DO_NOT_FRAGMENT 0x4000
#define TCP_WINDOW_MAX 65535

/* Set by user space: has the kernel the helpers (Linux 6.0)? */
const volatile bool has_raw_cookies;

/* With its one option. */
struct synack {
	struct tcphdr tcp;
	__u8 option;
	__u8 option_len;
	__be16 mss_be;
};

/* What a request is answered. */
struct cookie {
	__u32 sequence;
	__u16 window;
};

/* Of its IPv6 packets. */
static __always_inline bool is_plain6(const struct ipv6_pinfo *ip6)
{
	__s16 hops = kernel_bitfield(ip6, hop_limit);

	return hops < 0 && !kernel_read(ip6, min_hopcount) &&
	       !kernel_read(ip6, tclass) && !kernel_address(ip6, opt);
}

/* Nothing is asked of its packets, and nothing is changed in them, but what is
 * usual? */
static __always_inline bool is_plain_listener(const struct sock *sk)
{
	__u64 address = kernel_address_of(sk), ip6;
	const struct tcp_sock *tcp = kernel_cast(address, struct tcp_sock);
	const struct inet_sock *inet = kernel_cast(address, struct inet_sock);

	if (kernel_read(tcp, rx_opt.user_mss) ||
	    kernel_read(tcp, window_clamp) ||
	    (bpf_core_field_exists(tcp->md5sig_info) &&
	     kernel_address(tcp, md5sig_info)) ||
	    (bpf_core_field_exists(tcp->ao_info) &&
	     kernel_address(tcp, ao_info)))
		return false;
	if (kernel_read(inet, min_ttl) || kernel_read(inet, tos) ||
	    kernel_read(inet, uc_ttl) >= 0)
		return false;
	ip6 = bpf_core_field_exists(inet->pinet6) ? kernel_address(inet, pinet6)
						  : 0;
	return !ip6 || is_plain6(kernel_cast(ip6, struct ipv6_pinfo));
}

static __always_inline bool is_mptcp(const struct sock *sk)
{
	const struct tcp_sock *tcp =
		kernel_cast(kernel_address_of(sk), struct tcp_sock);

	return bpf_core_field_exists(tcp->is_mptcp) &&
	       kernel_read(tcp, is_mptcp);
}

/*
 * The window that this socket's answer offers; 0: the kernel is to answer, or
 * somebody else. Its own begins at half of the buffer or more
 * (tcp_select_initial_window()), and what is less is made up for by the first
 * segment that it sends. A client whose request for MPTCP is not answered goes
 * on with TCP; one that is to join a connection (`joins`) is refused. A global
 * function, like udp_judge().
 */
__noinline __u32 cookie_window(__u64 address, bool joins)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	__u32 window;

	if (kernel_read(sk, __sk_common.skc_state) != BPF_TCP_LISTEN ||
	    !tcp_requests_are_full(sk) || !tcp_has_sent_cookie(sk) ||
	    tcp_backlog_is_full(sk) || reuseport_may_pick_another(sk) ||
	    kernel_address(sk, sk_filter) || !is_plain_listener(sk) ||
	    (joins && is_mptcp(sk)))
		return 0;
	window = (__u32)kernel_read(sk, sk_rcvbuf) / 4;
	return window < TCP_WINDOW_MAX ? window : TCP_WINDOW_MAX;
}

/* Is this request for a listener that answers by cookie? */
static __noinline __u32 cookie_ask(void *ctx, const struct flow *flow,
				   bool joins)
{
	struct bpf_sock_tuple tuple;
	struct bpf_sock *skc;
	__u32 window;

	skc = bpf_skc_lookup_tcp(ctx, &tuple, tuple_of(flow, &tuple),
				 BPF_F_CURRENT_NETNS, 0);
	if (!skc)
		return 0;
	window = cookie_window(kernel_address_of(skc), joins);
	bpf_sk_release(skc);
	return window;
}

static __always_inline bool is_asked_here(const struct flow *flow)
{
	enum weir_address_kind *kind;

	if (interface.translated && is_translated_port(flow))
		return false;
	if (flow->family == WEIR_FAMILY_IPV4) {
		kind = bpf_map_lookup_elem(&local_ipv4, flow->destination);
		return kind && *kind == WEIR_ADDRESS_LOCAL &&
		       !is_special4(flow->source[0]) &&
		       !is_own_source4(flow->source[0]);
	}
	kind = bpf_map_lookup_elem(&local_ipv6, flow->destination);
	return kind && *kind == WEIR_ADDRESS_LOCAL &&
	       !is_special6(flow->source) &&
	       addressed_to6(flow->source) == ADDRESSED_ELSEWHERE;
}

/* What is before its TCP header. */
static __always_inline __u32 headers_len(const struct flow *flow)
{
	return sizeof(struct ethernet) + (flow->family == WEIR_FAMILY_IPV6
						  ? sizeof(struct ipv6hdr)
						  : sizeof(struct iphdr));
}

static __always_inline long load_tcp(struct packet *packet,
				     struct workspace *workspace, __u32 len)
{
	__u32 at = headers_len(&workspace->flow);

	return packet->on_skb ? bpf_skb_load_bytes(packet->ctx, at,
						   workspace->tcp, len)
			      : bpf_xdp_load_bytes(packet->ctx, at,
						   workspace->tcp, len);
}

/* Of the addresses, the protocol and the length (RFC 9293, section 3.1). */
static __always_inline __u64 pseudo_sum(const struct flow *flow, __u32 len)
{
	__u64 sum = bpf_htonl(IPPROTO_TCP) + (__u64)bpf_htonl(len);

	if (flow->family == WEIR_FAMILY_IPV4)
		return sum + flow->source[0] + flow->destination[0];
	return checksum_add(checksum_add(sum, flow->source, 4),
			    flow->destination, 4);
}

struct tcp_header {
	__u8 octets[sizeof(struct tcphdr) + TCP_OPTIONS_MAX];
};

/*
 * Is it to join a connection of MPTCP (RFC 8684, section 3.2)? A global
 * function: see ip4_options_say().
 */
__noinline bool joins_mptcp(const struct tcp_header *header, __u32 len)
{
	__u64 at = sizeof(struct tcphdr);
	int i;

	if (!header)
		return false;
	for (i = 0; i < TCP_OPTIONS_MAX; i++) {
		barrier_var(at);
		if (at >= len || at >= sizeof(*header) - 2 ||
		    header->octets[at] == TCP_OPTION_END)
			return false;
		if (header->octets[at] == TCP_OPTION_MPTCP)
			return header->octets[at + 2] >> 4 == MPTCP_JOIN;
		at += header->octets[at] == TCP_OPTION_NOOP
			      ? 1
			      : header->octets[at + 1];
	}
	return false;
}

/*
 * Puts its TCP header into the workspace; the header's length. 0: it is not for
 * the gate, as the kernel would drop it, or nobody could be answered.
 */
static __always_inline __u32 take_request(struct packet *packet,
					  struct workspace *workspace,
					  const struct cursor *behind)
{
	const struct flow *flow = &workspace->flow;
	const struct ethernet *eth = packet->cursor.pos;
	const struct tcphdr *tcp = behind->pos - sizeof(*tcp);
	const struct iphdr *ip4 = (const void *)tcp - sizeof(*ip4);
	__u32 words, len;

	if (is_group_mac(eth->source) ||
	    (flow->family == WEIR_FAMILY_IPV4 && !has_valid_checksum(ip4)))
		return 0;
	/* So that verifiers before 6.2 see its bounds wherever it is kept. */
	words = (tcp->doff - TCP_MIN_DOFF) & 0xf;
	barrier_var(words);
	len = sizeof(*tcp) + (words & 0xf) * 4;
	if (load_tcp(packet, workspace, len))
		return 0;
	if (workspace->partial ||
	    checksum_fold(pseudo_sum(flow, len) +
			  bpf_csum_diff(NULL, 0, (void *)workspace->tcp, len,
					0)) == 0xffff)
		return len;
	return 0;
}

/* Of IP's header the kernel looks at the addresses alone. */
static __always_inline struct iphdr header4(const struct flow *flow)
{
	return (struct iphdr){.saddr = flow->source[0],
			      .daddr = flow->destination[0]};
}

static __always_inline struct ipv6hdr header6(const struct flow *flow)
{
	struct ipv6hdr ip = {};

	copy_address(ip.saddr.in6_u.u6_addr32, flow->source);
	copy_address(ip.daddr.in6_u.u6_addr32, flow->destination);
	return ip;
}

/* The cookie itself. */
static __always_inline __s64 cookie_of(struct workspace *workspace, __u32 len)
{
	const struct flow *flow = &workspace->flow;
	struct tcphdr *tcp = (void *)workspace->tcp;
	struct iphdr ip4 = header4(flow);
	struct ipv6hdr ip6;

	if (flow->family == WEIR_FAMILY_IPV4)
		return bpf_tcp_raw_gen_syncookie_ipv4(&ip4, tcp, len);
	ip6 = header6(flow);
	return bpf_tcp_raw_gen_syncookie_ipv6(&ip6, tcp, len);
}

/* `partial`: the sum is left to whoever sends it, as it was. */
static __always_inline void write_synack(struct synack *answer,
					 const struct flow *flow,
					 const struct cookie *cookie,
					 bool partial)
{
	__u32 headers = headers_len(flow) - sizeof(struct ethernet);
	__be32 theirs = answer->tcp.seq;
	__u64 sum = pseudo_sum(flow, sizeof(*answer));

	__builtin_memset(answer, 0, sizeof(*answer));
	answer->tcp.source = flow->port_be;
	answer->tcp.dest = flow->source_port_be;
	answer->tcp.seq = bpf_htonl(cookie->sequence);
	answer->tcp.ack_seq = bpf_htonl(bpf_ntohl(theirs) + 1);
	answer->tcp.doff = sizeof(*answer) / 4;
	answer->tcp.syn = 1;
	answer->tcp.ack = 1;
	answer->tcp.window = bpf_htons(cookie->window);
	answer->option = TCP_OPTION_MSS;
	answer->option_len = 4;
	answer->mss_be = bpf_htons(interface.cookie_mtu - headers -
				   sizeof(struct tcphdr));
	if (partial) {
		answer->tcp.check = checksum_fold(sum);
		return;
	}
	sum = checksum_add(sum, (const __u32 *)answer, sizeof(*answer) / 4);
	answer->tcp.check = ~checksum_fold(sum);
}

static __always_inline void write_ip4(struct iphdr *ip, const struct flow *flow)
{
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(struct synack));
	ip->frag_off = bpf_htons(IPV4_DO_NOT_FRAGMENT);
	ip->ttl = interface.cookie_ttl;
	ip->protocol = IPPROTO_TCP;
	ip->saddr = flow->destination[0];
	ip->daddr = flow->source[0];
	ip->check = ~checksum_fold(checksum_add(0, (const __u32 *)ip, 5));
}

static __always_inline void write_ip6(struct ipv6hdr *ip,
				      const struct flow *flow)
{
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 6;
	ip->payload_len = bpf_htons(sizeof(struct synack));
	ip->nexthdr = IPPROTO_TCP;
	ip->hop_limit = interface.cookie_hops;
	copy_address(ip->saddr.in6_u.u6_addr32, flow->destination);
	copy_address(ip->daddr.in6_u.u6_addr32, flow->source);
}

/* Back to whoever sent it. The packet has the answer's length already. */
static __always_inline bool write_answer(struct cursor cursor,
					 const struct flow *flow,
					 const struct cookie *cookie,
					 bool partial)
{
	struct ethernet *eth = cursor_take(&cursor, sizeof(*eth));
	struct synack *answer;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;

	if (!eth)
		return false;
	__builtin_memcpy(eth->destination, eth->source, ETH_ALEN);
	__builtin_memcpy(eth->source, interface.mac, ETH_ALEN);
	if (flow->family == WEIR_FAMILY_IPV4) {
		ip4 = cursor_take(&cursor, sizeof(*ip4));
		answer = cursor_take(&cursor, sizeof(*answer));
		if (!ip4 || !answer)
			return false;
		write_ip4(ip4, flow);
	} else {
		ip6 = cursor_take(&cursor, sizeof(*ip6));
		answer = cursor_take(&cursor, sizeof(*answer));
		if (!ip6 || !answer)
			return false;
		write_ip6(ip6, flow);
	}
	write_synack(answer, flow, cookie, partial);
	return true;
}

static __always_inline __u32 answer_len(const struct flow *flow)
{
	__u32 len = headers_len(flow) + sizeof(struct synack);

	return len < ETH_ZLEN ? ETH_ZLEN : len;
}

/* What would this packet be answered? False: the kernel is to see to it. */
static __always_inline bool cookie_for(struct packet *packet,
				       struct workspace *workspace,
				       struct cookie *cookie)
{
	struct cursor cursor = packet->cursor;
	struct flow *flow = &workspace->flow;
	__s64 made;
	__u32 len;

	__builtin_memset(flow, 0, sizeof(*flow));
	if (parse_usual(&cursor, flow, packet->len) != WEIR_PARSE_TCP ||
	    !tcp_is_syn(flow) || !is_own_mac(flow->mac) || !is_asked_here(flow))
		return false;
	len = take_request(packet, workspace, &cursor);
	if (!len)
		return false;
	cookie->window = cookie_ask(packet->ctx, flow,
				    joins_mptcp((void *)workspace->tcp, len));
	if (!cookie->window)
		return false;
	made = cookie_of(workspace, len);
	cookie->sequence = made;
	return made >= 0;
}

/* Does user space say that the CPU is short for requests? */
static __always_inline bool answers_requests(const struct weir_poll *poll)
{
	const struct weir_account *account;

	if (!has_raw_cookies || no_ethernet || explaining ||
	    !interface.cookie_mtu || interface.shadow)
		return false;
	account = account_at(WEIR_KIND_TCP_REQUEST);
	return poll && account && poll->now_ns < account->short_until_ns;
}

/*
 * Is this packet to be answered? Of each poll's requests the first is the
 * kernel's, whose answer is the better one, and who forgets that it has sent
 * any (tcp_has_sent_cookie()).
 */
static __always_inline bool is_to_be_answered(__u32 reason)
{
	struct weir_poll *poll;

	/* Before all else: every packet is asked. */
	if (reason != WEIR_REASON_TCP_REQUEST)
		return false;
	poll = current_poll();
	if (!answers_requests(poll))
		return false;
	if (poll->requested == poll->number + 1)
		return true;
	poll->requested = poll->number + 1;
	return false;
}

/*
 * The packet becomes its own answer, to be sent by whoever brought it: in the
 * driver... Global functions, which the verifier looks at once.
 */
__noinline bool xdp_answer(struct xdp_md *ctx)
{
	struct workspace *workspace = get_workspace();
	struct cookie cookie = {};
	struct packet packet = packet_of_xdp(ctx);

	if (!workspace || (interface.unfinished && is_tagged_aside(ctx)) ||
	    ctx->data_end - ctx->data != packet.len)
		return false;
	workspace->partial = interface.unfinished && is_unfinished(ctx);
	if (!cookie_for(&packet, workspace, &cookie) ||
	    bpf_xdp_adjust_tail(ctx, (int)answer_len(&workspace->flow) -
					     (int)packet.len))
		return false;
	return write_answer(cursor_of(ctx), &workspace->flow, &cookie, false);
}

/* What XDP_TX puts on a veth's ring, the peer is told of only if it has a
 * program of its own (veth_xdp_flush()). */
static __always_inline long send_back(void)
{
	return interface.unfinished ? bpf_redirect(interface.ifindex, 0)
				    : XDP_TX;
}

/* ...and on an skb. */
__noinline bool skb_answer(struct __sk_buff *skb)
{
	struct workspace *workspace = get_workspace();
	struct cookie cookie = {};
	struct packet packet = packet_of_skb(skb);
	const struct sk_buff *kernel_skb;
	__u32 len;

	if (!workspace || !has_kern_ctx() || skb->gso_size || skb->vlan_present)
		return false;
	kernel_skb = bpf_cast_to_kern_ctx(skb);
	workspace->partial = BPF_CORE_READ_BITFIELD(kernel_skb, ip_summed) ==
			     CHECKSUM_PARTIAL;
	if (!cookie_for(&packet, workspace, &cookie))
		return false;
	len = answer_len(&workspace->flow);
	/* By another length a sum that the NIC has made of all of it is
	 * forgotten (CHECKSUM_COMPLETE). */
	if (skb->len == len && bpf_skb_change_tail(skb, len + 1, 0))
		return false;
	if (bpf_skb_change_tail(skb, len, 0))
		return false;
	return write_answer(cursor_of(skb), &workspace->flow, &cookie,
			    workspace->partial);
}

/*
 * Where connections are followed, a client's first segment comes as if from
 * nowhere. The kernel takes it for a connection, but drops what comes in one
 * poll with it, as another one of the same addresses
 * (__nf_conntrack_confirm()): so it is known before.
 */
struct nf_conn___init {
	struct nf_conn ct;
};

/* Linux 6.0: net/netfilter/nf_conntrack_bpf.c. */
extern struct nf_conn___init *
bpf_xdp_ct_alloc(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
		 __u32 tuple_size, struct bpf_ct_opts___weir *options,
		 __u32 options_size) __ksym __weak;
extern struct nf_conn___init *
bpf_skb_ct_alloc(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
		 __u32 tuple_size, struct bpf_ct_opts___weir *options,
		 __u32 options_size) __ksym __weak;
extern struct nf_conn *
bpf_ct_insert_entry(struct nf_conn___init *connection) __ksym __weak;

/* Of the connection in the workspace's tuple. It is given up like any other of
 * which nothing more is heard. */
#define CONNECTED_BY(function, context, alloc)                               \
	static __noinline int function(context *ctx, __u32 tuple_size)       \
	{                                                                    \
		struct workspace *workspace = get_workspace();               \
		struct bpf_ct_opts___weir options = ct_options(IPPROTO_TCP); \
		struct nf_conn___init *made;                                 \
		struct nf_conn *connection;                                  \
                                                                             \
		if (!workspace || !has_ct_lookup)                            \
			return 0;                                            \
		made = alloc(ctx, &workspace->tuple, tuple_size, &options,   \
			     sizeof(options));                               \
		if (!made)                                                   \
			return 0;                                            \
		connection = bpf_ct_insert_entry(made);                      \
		if (connection)                                              \
			bpf_ct_release(connection);                          \
		return 0;                                                    \
	}

CONNECTED_BY(xdp_connect, struct xdp_md, bpf_xdp_ct_alloc)
CONNECTED_BY(skb_connect, struct __sk_buff, bpf_skb_ct_alloc)

/* Does it bring a cookie back? */
static __always_inline bool has_cookie(struct packet *packet,
				       struct workspace *workspace)
{
	struct cursor cursor = packet->cursor;
	struct flow *flow = &workspace->flow;
	struct tcphdr *tcp = (void *)workspace->tcp;
	struct ipv6hdr ip6;
	struct iphdr ip4;

	__builtin_memset(flow, 0, sizeof(*flow));
	if (parse_usual(&cursor, flow, packet->len) != WEIR_PARSE_TCP ||
	    (flow->tcp_flags & (TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK ||
	    load_tcp(packet, workspace, sizeof(*tcp)))
		return false;
	ip4 = header4(flow);
	if (flow->family == WEIR_FAMILY_IPV4)
		return !bpf_tcp_raw_check_syncookie_ipv4(&ip4, tcp);
	ip6 = header6(flow);
	return !bpf_tcp_raw_check_syncookie_ipv6(&ip6, tcp);
}

static __always_inline bool may_bring_cookie(__u32 reason)
{
	return reason == WEIR_REASON_TCP_STRAY && interface.translated &&
	       answers_requests(current_poll());
}

__noinline int xdp_welcome(struct xdp_md *ctx)
{
	struct workspace *workspace = get_workspace();
	struct packet packet = packet_of_xdp(ctx);

	if (workspace && has_cookie(&packet, workspace))
		xdp_connect(ctx, tuple_of(&workspace->flow, &workspace->tuple));
	return 0;
}

__noinline int skb_welcome(struct __sk_buff *skb)
{
	struct workspace *workspace = get_workspace();
	struct packet packet = packet_of_skb(skb);

	if (workspace && has_cookie(&packet, workspace))
		skb_connect(skb, tuple_of(&workspace->flow, &workspace->tuple));
	return 0;
}

#endif /* WEIR_COOKIE_H */
