#include "ringbuffer/rdma/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

namespace blink {
namespace {

// 4.096 us * 2^14 = 67 ms for an acknowledgement, seven times more before the queue pair fails: an interruption
// of up to half a second goes unnoticed, and a longer one is known before the lease runs out (V6).
constexpr uint8_t kAckTimeout = 14, kRetries = 7, kRnrTimer = 12, kHopLimit = 64;
constexpr uint8_t kMaxReads = 16;

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw VerbsError(what + ": " + std::strerror(error));
}

uint32_t random_packet_number() {
  return std::random_device()() & 0xffffff;
}

// Whether the GID is that IP address: RoCE v2 maps IPv4 as ::ffff:a.b.c.d (InfiniBand Annex A17).
bool is_address(const ibv_gid& gid, const std::string& address) {
  in6_addr wanted;
  const std::string text = address.find(':') == std::string::npos ? "::ffff:" + address : address;
  return inet_pton(AF_INET6, text.c_str(), &wanted) == 1 && std::memcmp(&wanted, gid.raw, 16) == 0;
}

bool is_ipv4(const ibv_gid& gid) {
  static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, prefix, sizeof(prefix)) == 0;
}

// How well a GID serves; 0 is not at all.
int rank(const ibv_gid_entry& entry, const ibv_port_attr& port, const DeviceChoice& choice) {
  if (choice.gid_index >= 0) return int(entry.gid_index) == choice.gid_index;
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) return entry.gid_index == 0;
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 0;
  return is_address(entry.gid, choice.local_address) ? 4 : is_ipv4(entry.gid) ? 3 : 2;
}

struct Found {
  ibv_device* device = nullptr;
  uint8_t port = 0;
  ibv_gid_entry entry{};
  int rank = 0;
};

void look_at(ibv_device* device, const DeviceChoice& choice, Found* best) {
  ibv_context* context = ibv_open_device(device);
  if (!context) return;
  ibv_device_attr attributes;
  if (ibv_query_device(context, &attributes) == 0) {
    for (uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
      ibv_port_attr state;
      if (ibv_query_port(context, port, &state) != 0 || state.state != IBV_PORT_ACTIVE) continue;
      for (int i = 0; i < state.gid_tbl_len; ++i) {
        ibv_gid_entry entry;
        if (ibv_query_gid_ex(context, port, uint32_t(i), &entry, 0) != 0) continue;
        if (const int r = rank(entry, state, choice); r > best->rank) *best = {device, port, entry, r};
      }
    }
  }
  ibv_close_device(context);
}

}  // namespace

Device::Device(const DeviceChoice& choice) {
  int n = 0;
  ibv_device** devices = ibv_get_device_list(&n);
  std::unique_ptr<ibv_device*, void (*)(ibv_device**)> owner(devices, ibv_free_device_list);
  if (!devices || n == 0) throw VerbsError("this machine has no RDMA device (`ibv_devices` lists them)");
  Found found;
  std::string names;
  for (int i = 0; i < n; ++i) {
    const std::string name = ibv_get_device_name(devices[i]);
    names += (i ? ", " : "") + name;
    if (choice.name.empty() || choice.name == name) look_at(devices[i], choice, &found);
  }
  if (!found.device) {
    const std::string gid = choice.gid_index < 0 ? "a usable GID" : "GID " + std::to_string(choice.gid_index);
    throw VerbsError("no active port with " + gid + " on " +
                     (choice.name.empty() ? "any RDMA device" : "RDMA device '" + choice.name + "'") +
                     "; the devices are: " + names);
  }
  port = found.port;
  gid_index = int(found.entry.gid_index);
  gid = found.entry.gid;
  context = ibv_open_device(found.device);
  if (!context) fail("cannot open RDMA device " + std::string(ibv_get_device_name(found.device)));
  domain = ibv_alloc_pd(context);
  if (!domain || ibv_query_port(context, port, &port_attributes) || ibv_query_device(context, &attributes)) {
    const int error = errno;
    close();
    fail("cannot use RDMA device " + std::string(ibv_get_device_name(found.device)), error);
  }
}

Device::~Device() {
  close();
}

void Device::close() {
  if (domain) ibv_dealloc_pd(domain);
  ibv_close_device(context);
}

Registration::Registration(const Device& device, void* memory, size_t bytes, int access)
    : region(ibv_reg_mr(device.domain, memory, bytes, unsigned(access))) {
  if (!region) fail("cannot register " + std::to_string(bytes) + " bytes (is `ulimit -l` too low?)");
}

Registration::Registration(const Device& device, int dmabuf, uint64_t offset, size_t bytes, int access)
    : region(ibv_reg_dmabuf_mr(device.domain, offset, bytes, 0, dmabuf, access)) {
  if (!region)
    fail("cannot register " + std::to_string(bytes) +
         " bytes of GPU memory as a dma-buf (can the RDMA device's driver? a ring in host memory, --transport shm, "
         "needs none)");
}

Registration::~Registration() {
  if (region) ibv_dereg_mr(region);
}

QueuePair::QueuePair(const Device& device, uint32_t depth, int access)
    : first_packet(random_packet_number()), device_(device) {
  // One completion per work request: that is how many a failing queue pair flushes.
  completions = ibv_create_cq(device.context, int(depth), nullptr, nullptr, 0);
  if (!completions) fail("cannot create a completion queue of " + std::to_string(depth));
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = depth;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = kInlineBytes;
  pair = ibv_create_qp(device.domain, &wanted);
  if (!pair) {
    const int error = errno;
    close();
    fail("cannot create a queue pair", error);
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device.port;
  attributes.qp_access_flags = unsigned(access);
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (const int error = ibv_modify_qp(pair, &attributes, mask)) {
    close();
    fail("cannot initialize a queue pair", error);
  }
}

QueuePair::~QueuePair() {
  close();
}

void QueuePair::close() {
  if (pair) ibv_destroy_qp(pair);
  if (completions) ibv_destroy_cq(completions);
}

void QueuePair::connect(const blink_rdma_address& peer, uint32_t index) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = ibv_mtu(std::min(uint32_t(device_.port_attributes.active_mtu), peer.mtu));
  attributes.dest_qp_num = peer.numbers[index];
  attributes.rq_psn = peer.first_packets[index];
  attributes.max_dest_rd_atomic = uint8_t(std::clamp(device_.attributes.max_qp_rd_atom, 1, int(kMaxReads)));
  attributes.min_rnr_timer = kRnrTimer;
  attributes.ah_attr.port_num = device_.port;
  attributes.ah_attr.dlid = uint16_t(peer.lid);
  attributes.ah_attr.is_global = device_.port_attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid, sizeof(peer.gid));
  attributes.ah_attr.grh.sgid_index = uint8_t(device_.gid_index);
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER;
  if (const int error = ibv_modify_qp(pair, &attributes, mask)) fail("cannot connect a queue pair (RTR)", error);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = first_packet;
  attributes.timeout = kAckTimeout;
  attributes.retry_cnt = attributes.rnr_retry = kRetries;
  attributes.max_rd_atomic = uint8_t(
      std::clamp(std::min(uint32_t(device_.attributes.max_qp_init_rd_atom), peer.reads), 1u, uint32_t(kMaxReads)));
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  if (const int error = ibv_modify_qp(pair, &attributes, mask)) fail("cannot connect a queue pair (RTS)", error);
}

void QueuePair::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(pair, &attributes, IBV_QP_STATE);  // fails only where the device is gone: nothing is sent then either
}

Endpoint::Endpoint(const Device& device, uint32_t depth, int access)
    : submission(device, depth, access), retrieval(device, depth, access), device_(device) {}

blink_rdma_address Endpoint::address() const {
  blink_rdma_address found{};
  std::memcpy(found.gid, device_.gid.raw, sizeof(found.gid));
  found.lid = device_.port_attributes.lid;
  found.mtu = device_.port_attributes.active_mtu;
  found.reads = uint32_t(std::clamp(device_.attributes.max_qp_rd_atom, 1, int(kMaxReads)));
  const QueuePair* pairs[BLINK_RDMA_QUEUE_PAIRS] = {&submission, &retrieval};
  for (uint32_t i = 0; i < BLINK_RDMA_QUEUE_PAIRS; ++i) {
    found.numbers[i] = pairs[i]->pair->qp_num;
    found.first_packets[i] = pairs[i]->first_packet;
  }
  return found;
}

void Endpoint::connect(const blink_rdma_address& peer) {
  submission.connect(peer, 0);
  retrieval.connect(peer, 1);
}

}  // namespace blink
