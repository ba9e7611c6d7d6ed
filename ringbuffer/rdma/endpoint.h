// Reliable-connected queue pairs over libibverbs, as both sides of a ring set them up: one device, one port, one
// GID, two queue pairs, their attributes defined once. What is posted to them is the frontend's business
// (nic_frontend/native/verbs); the backend's side never posts anything.
#ifndef BLINK_RDMA_ENDPOINT_H
#define BLINK_RDMA_ENDPOINT_H

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "ringbuffer/rdma/address.h"

namespace blink {

// Says what could not be done, and why.
struct VerbsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Which device to use. Empty and -1 leave the choice: the port that has `local_address` as a GID, so that the
// data takes the network that the exchange's connection took, else the first active one.
struct DeviceChoice {
  std::string name;
  int gid_index = -1;
  std::string local_address;  // IPv4 or IPv6, in digits
};

// An opened device with a protection domain, and the port and GID that were chosen.
class Device {
 public:
  // Throws VerbsError when there is none, or none that matches.
  explicit Device(const DeviceChoice& choice);
  ~Device();
  Device(const Device&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  uint8_t port = 0;
  int gid_index = 0;
  ibv_gid gid{};
  ibv_port_attr port_attributes{};
  ibv_device_attr attributes{};

 private:
  void close();
};

// Memory that queue pairs of `device` may use. Never with relaxed ordering (V3).
class Registration {
 public:
  Registration(const Device& device, void* memory, size_t bytes, int access);
  // GPU memory exported as a dma-buf; remote addresses count from 0. Has run over a fake alone: no machine
  // of this project has both a GPU and an RDMA device.
  Registration(const Device& device, int dmabuf, uint64_t offset, size_t bytes, int access);
  ~Registration();
  Registration(const Registration&) = delete;

  ibv_mr* region = nullptr;
};

// A queue pair with a completion queue of its own that cannot overflow.
class QueuePair {
 public:
  static constexpr uint32_t kInlineBytes = 8;

  // In state INIT. `depth` is the number of work requests it holds, `access` what the peer may do.
  QueuePair(const Device& device, uint32_t depth, int access);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;

  // To RTS, connected to the peer's queue pair with the same index.
  void connect(const blink_rdma_address& peer, uint32_t index);
  // Everything posted is flushed and nothing new is sent.
  void stop();

  ibv_cq* completions = nullptr;
  ibv_qp* pair = nullptr;
  uint32_t first_packet = 0;

 private:
  void close();
  const Device& device_;
};

// The two queue pairs of one side.
class Endpoint {
 public:
  Endpoint(const Device& device, uint32_t depth, int access);

  blink_rdma_address address() const;
  void connect(const blink_rdma_address& peer);

  QueuePair submission, retrieval;

 private:
  const Device& device_;
};

}  // namespace blink

#endif  // BLINK_RDMA_ENDPOINT_H
