// A simulated CUDA device for a CPU build of torch.
//
// Its tensors are ordinary tensors whose device is cuda:N and whose memory is the host's. A boxed fallback runs each
// operation with the CPU's kernel on the same memory. Before that it checks what a GPU enforces: one device per
// operation, memory that is full. It counts the calls of each kernel, and it notices when a stream reads or writes what
// another one writes, writes what another one reads, or frees what another one uses, without having waited for it.
//
// Compiled with -DSIMULATED=XPU or MPS, it is a device of that type: what says CUDA below is then of that type, too.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

// Of torch's Python library; its header needs Python's.
namespace torch::utils {
void set_requires_device_init(c10::DeviceType device, bool value);
}

#ifndef SIMULATED
#define SIMULATED CUDA
#endif
#define JOINED(a, b, c) a##b##c
#define NAMED(a, b, c) JOINED(a, b, c)
#define HOOKS NAMED(, SIMULATED, HooksInterface)

namespace {

constexpr auto CUDA = c10::DeviceType::SIMULATED;
constexpr int MOST = 8;
int devices = 0;  // None while no device is simulated.
thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, MOST> streams{};

// The state is under one lock: the simulated devices run one operation at a time. Memory is freed by threads that hold
// Python's lock, for which an operation may wait when it drops a tensor; so memory has a lock of its own, under which
// nothing else is waited for.
std::recursive_mutex state, leaf;
using Locked = std::lock_guard<std::recursive_mutex>;
std::map<std::string, long> kernels, bytes;  // The latter: of what an operation reads and writes.

// ------------------------------------------------------------------------------------------------------ memory

long used = 0, most_used = 0, limit = -1, allocations = 0, fail_at = -1;

using Queue = std::pair<int, c10::StreamId>;  // (device, stream)

struct Block {
  void* data;
  size_t size;
  Queue owner;  // torch gives freed memory to this stream again, without waiting for others.
};

void forget(const void* data, const Queue& owner);

void release(void* context) {
  if (!context) return;
  auto* block = static_cast<Block*>(context);
  {
    Locked locked(leaf);
    used -= static_cast<long>(block->size);
    forget(block->data, block->owner);
  }
  c10::GetDefaultCPUAllocator()->raw_deleter()(block->data);
  delete block;
}

// MPS has no exception of its own.
void full(size_t size) {
  TORCH_CHECK(CUDA != c10::DeviceType::MPS, "MPS backend out of memory (simulated)");
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size, " bytes (simulated)");
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    Locked locked(leaf);
    TORCH_CHECK(current < devices, "CUDA error: invalid device ordinal");
    const c10::Device device(CUDA, current);
    if (!size) return {nullptr, nullptr, &release, device};
    allocations++;
    if ((limit >= 0 && used + static_cast<long>(size) > limit) || allocations == fail_at)
      full(size);
    auto* block = new Block{c10::GetDefaultCPUAllocator()->raw_allocate(size), size, {current, streams[current]}};
    std::memset(block->data, 0xFF, size);  // New memory holds no zeros, but NaN.
    used += static_cast<long>(size);
    most_used = std::max(most_used, used);
    return {block->data, block, &release, device};
  }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};
Memory memory;

// Memory of one device while this exists.
struct On {
  c10::DeviceIndex before = current;
  explicit On(c10::DeviceIndex index) {
    if (index >= 0) current = index;
  }
  ~On() { current = before; }
};

std::map<const char*, size_t> pinned;

bool is_pinned(const void* data) {
  Locked locked(leaf);
  auto after = pinned.upper_bound(static_cast<const char*>(data));
  if (after == pinned.begin()) return false;
  --after;
  return static_cast<const char*>(data) < after->first + std::max<size_t>(after->second, 1);
}

// ----------------------------------------------------------------------------------- streams, events and races

// What each stream, and the host, is known to have waited for: for every stream the number of its last operation.
using Clock = std::map<Queue, long>;
const Queue HOST{-1, 0};
std::map<Queue, Clock> known;
c10::StreamId last_stream = 0;

struct Written {
  Queue queue;
  long time;
};
// By the address of a storage's memory: its last writer, when each stream has used it last, and whether torch was told
// of these (record_stream), so that it waits for them before it gives the memory to another tensor.
std::unordered_map<const void*, Written> writers;
std::unordered_map<const void*, Clock> users;
std::set<const void*> recorded;
std::vector<std::pair<Queue, Clock>> freed_memory;  // Owners and users, to be judged where the clocks may be read.
std::vector<std::string> problems;

void forget(const void* data, const Queue& owner) {
  auto found = users.find(data);
  if (found != users.end() && !recorded.count(data)) freed_memory.emplace_back(owner, found->second);
  writers.erase(data);
  users.erase(data);
  recorded.erase(data);
}

void merge(Clock& mine, const Clock& other) {
  for (const auto& [queue, time] : other) mine[queue] = std::max(mine[queue], time);
}

// Called before any clock changes.
void judge_freed_memory() {
  std::vector<std::pair<Queue, Clock>> all;
  {
    Locked locked(leaf);
    all.swap(freed_memory);
  }
  for (const auto& [owner, clock] : all)
    for (const auto& [queue, time] : clock)
      if (queue != owner && known[owner][queue] < time && known[HOST][queue] < time)
        problems.push_back("memory is freed while another stream may still use it; tell torch by record_stream, or wait");
}

// Copies that the host did not wait for. Those to the host happen when it waits, so that who reads too early reads
// garbage; the memory of those to the device must not change before.
struct Pending {
  Queue queue;
  long time;
  at::Tensor from, to;  // to the host: a snapshot, and the pinned memory
  const void* data;     // to the device: the pinned memory, its size and its sum
  size_t size;
  size_t sum;
};
std::list<Pending> pending;

size_t sum_of(const void* data, size_t size) {
  return std::hash<std::string_view>{}({static_cast<const char*>(data), size});
}

void settle(const Pending& copy) {
  if (copy.to.defined()) {
    std::memcpy(copy.to.storage().mutable_data(), copy.from.storage().data(), copy.size);
  } else if (sum_of(copy.data, copy.size) != copy.sum) {
    problems.push_back("pinned memory changes before its copy to the device is known to have happened");
  }
}

// The host has waited: for a stream, an event or everything.
void host_waits(const Clock& clock) {
  judge_freed_memory();
  merge(known[HOST], clock);
  for (auto copy = pending.begin(); copy != pending.end();) {
    if (known[HOST][copy->queue] >= copy->time) {
      settle(*copy);
      copy = pending.erase(copy);
    } else {
      ++copy;
    }
  }
}

// Pinned memory that Python has freed. torch keeps it until the copies from it have happened; so does this.
std::vector<char*> freed;

void unpin(void* data) {
  Locked locked(leaf);
  freed.push_back(static_cast<char*>(data));
}

void free_pinned() {
  std::vector<char*> all;
  {
    Locked locked(leaf);
    all.swap(freed);
  }
  for (char* start : all) {
    const char* end = start + pinned[start];
    for (auto copy = pending.begin(); copy != pending.end();) {
      const auto* place = static_cast<const char*>(copy->data);
      const bool inside = !copy->to.defined() && place >= start && place <= end;
      if (inside) settle(*copy);
      copy = inside ? pending.erase(copy) : std::next(copy);
    }
    Locked locked(leaf);
    pinned.erase(start);
    c10::GetDefaultCPUAllocator()->raw_deleter()(start);
  }
}

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* data = c10::GetDefaultCPUAllocator()->raw_allocate(std::max<size_t>(size, 1));
    Locked locked(leaf);
    pinned[static_cast<const char*>(data)] = size;
    return {data, data, &unpin, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};
PinnedMemory pinned_memory;

struct Event {
  Clock clock;
};

// ------------------------------------------------------------------------------------------------------- guard

c10::Stream stream_of(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return CUDA; }
  c10::Device getDevice() const override { return {CUDA, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < devices, "CUDA error: invalid device ordinal");
    if (device.index() >= 0) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto old = getDevice();
    setDevice(device);
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(devices); }
  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.index() < 0 ? current : device.index();
    return stream_of({CUDA, index}, streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of({CUDA, device.index() < 0 ? current : device.index()}, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto old = getStream(stream.device());
    streams[stream.device_index()] = stream.id();
    return old;
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    Locked locked(state);
    judge_freed_memory();
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->clock = known[{stream.device_index(), stream.id()}];
  }
  void block(void* event, const c10::Stream& stream) const override {
    Locked locked(state);
    judge_freed_memory();
    if (event) merge(known[{stream.device_index(), stream.id()}], static_cast<Event*>(event)->clock);
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
};

}  // namespace

// ------------------------------------------------------------------------------------------------------- hooks

namespace at {
struct SimulatedHooks final : HOOKS {
  bool NAMED(has, SIMULATED, )() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  // Not all types have these.
  c10::DeviceIndex current_device() const { return current; }
  std::conditional_t<c10::DeviceType::SIMULATED == c10::DeviceType::CUDA, int, c10::DeviceIndex> getNumGPUs() const { return devices; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(devices); }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::Allocator* getCUDADeviceAllocator() const { return &memory; }
  long versionCuDNN() const { return 0; }  // Asked by a torch that is built with CUDA.
  long versionRuntimeCuDNN() const { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Device getDeviceFromPtr(void*) const override { return c10::Device(c10::DeviceType::SIMULATED, current); }
};
}  // namespace at

namespace {

// ------------------------------------------------------------------------------- between the device and the host

// A storage of one device over the memory of a storage of another.
c10::Storage over(const c10::Storage& storage, c10::Device device) {
  auto* held = new c10::Storage(storage);
  c10::DataPtr data(
      const_cast<void*>(storage.data()), held, [](void* context) { delete static_cast<c10::Storage*>(context); }, device);
  auto* allocator = device.is_cpu() ? c10::GetDefaultCPUAllocator() : static_cast<c10::Allocator*>(&memory);
  return {c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), allocator, true};
}

at::Tensor shaped(const c10::Storage& storage, const at::Tensor& like, c10::DispatchKey key) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

// The tensors among the arguments or results of an operation.
struct Tensors {
  std::vector<at::Tensor> simulated, host;
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.device().type() == CUDA) simulated.push_back(tensor);
    else if (tensor.device().is_cpu()) host.push_back(tensor);
  }
  void add(const c10::IValue& value) {
    if (value.isTensor()) add(value.toTensor());
    else if (value.isTensorList()) for (const at::Tensor& each : value.toTensorVector()) add(each);
    else if (value.isList()) for (const c10::IValue& each : value.toListRef()) add(each);
  }
};

// Arguments from the device to the host and results back, over the same memory.
struct Translation {
  std::unordered_map<c10::StorageImpl*, c10::Storage> to_host, to_device;
  std::vector<c10::Storage> alive;
  std::vector<std::pair<at::Tensor, at::Tensor>> arguments;  // (host, device)

  at::Tensor host(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != CUDA) return tensor;
    for (const auto& [made, given] : arguments)
      if (given.is_same(tensor)) return made;
    auto found = to_host.find(tensor.storage().unsafeGetStorageImpl());
    if (found == to_host.end()) {
      auto storage = over(tensor.storage(), c10::Device(c10::DeviceType::CPU));
      to_device.emplace(storage.unsafeGetStorageImpl(), tensor.storage());
      found = to_host.emplace(tensor.storage().unsafeGetStorageImpl(), storage).first;
    }
    auto made = shaped(found->second, tensor, c10::DispatchKey::CPU);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    arguments.emplace_back(made, tensor);
    return made;
  }
  c10::IValue host(const c10::IValue& value) {
    if (value.isTensor()) return host(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) all.push_back(host(each));
      return all;
    }
    if (value.isList() && value.type()->containedType(0)->kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> all;
      for (const c10::IValue& each : value.toListRef())
        all.push_back(each.isNone() ? std::nullopt : std::make_optional(host(each.toTensor())));
      return all;
    }
    if (value.isDevice() && value.toDevice().type() == CUDA) return c10::Device(c10::DeviceType::CPU);
    return value;
  }
  // A copy of a storage in the memory of a device.
  c10::Storage moved(const c10::Storage& storage, c10::Device device) {
    On on(device.index());
    auto data = memory.allocate(storage.nbytes());
    if (storage.nbytes()) std::memcpy(data.get(), storage.data(), storage.nbytes());
    c10::Storage made{c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), &memory, true};
    to_device.insert_or_assign(storage.unsafeGetStorageImpl(), made);
    alive.push_back(storage);
    return made;
  }
  at::Tensor device(const at::Tensor& tensor, c10::Device device) {
    if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
    for (const auto& [made, given] : arguments)
      if (made.is_same(tensor)) return given;
    auto found = to_device.find(tensor.storage().unsafeGetStorageImpl());
    const auto storage = found == to_device.end() ? moved(tensor.storage(), device) : found->second;
    return shaped(storage, tensor, c10::DispatchKey::SIMULATED);
  }
  c10::IValue device(const c10::IValue& value, c10::Device where) {
    if (value.isTensor()) return device(value.toTensor(), where);
    if (value.isTensorList()) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) all.push_back(device(each, where));
      return all;
    }
    return value;
  }
  // What an operation has done to its arguments beside writing into their memory: another size, other memory.
  void write_back() {
    for (auto& [made, given] : arguments) {
      auto found = to_device.find(made.storage().unsafeGetStorageImpl());
      if (found == to_device.end() || made.storage().data() != found->second.data())
        given.unsafeGetTensorImpl()->set_storage_keep_dtype(moved(made.storage(), given.device()));
      else if (found->second.unsafeGetStorageImpl() != given.storage().unsafeGetStorageImpl())
        given.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(found->second));
      if (made.sizes() != given.sizes() || made.strides() != given.strides() ||
          made.storage_offset() != given.storage_offset())
        given.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides(), made.storage_offset());
    }
  }
};

// ---------------------------------------------------------------------------------------------------- fallback

// These launch no kernel.
const std::set<std::string> VIEWS = {
    "view", "as_strided", "slice", "select", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "alias",
    "detach", "unbind", "split", "split_with_sizes", "_unsafe_view", "diagonal", "_reshape_alias", "unfold",
    "view_as_real", "view_as_complex", "lift", "lift_fresh", "set_", "resize_", "record_stream", "is_pinned",
    "_fused_sdp_choice", "squeeze_", "unsqueeze_", "t_", "transpose_", "detach_", "_nested_view_from_buffer"};
// The host waits for these: their result is a number, or the size of a tensor.
const std::set<std::string> WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim",
                                     "unique_consecutive", "equal", "bincount"};

// A device draws random numbers from a generator of its own: while this exists, the host's has its state.
std::array<std::optional<at::Generator>, MOST> generators;
struct Draws {
  at::Generator host = at::globalContext().defaultGenerator(c10::DeviceType::CPU);
  at::Tensor before;
  std::optional<at::Generator> own;
  Draws(const c10::OperatorHandle& op, c10::DeviceIndex device) {
    if (!op.hasTag(at::Tag::nondeterministic_seeded) || !generators[device]) return;
    own = generators[device];
    before = host.get_state();
    host.set_state(own->get_state());
  }
  ~Draws() {
    if (!own) return;
    own->set_state(host.get_state());
    host.set_state(before);
  }
};
void set_generator(const std::optional<at::Generator>& generator, int64_t device) { generators[device] = generator; }

// What an operation holds; it is dropped without the lock.
struct Held {
  Tensors seen;
  Translation translation;
  std::vector<c10::IValue> arguments;
  torch::jit::Stack given;
};

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack, Held& held) {
  auto& [seen, translation, arguments, given] = held;
  free_pinned();
  judge_freed_memory();
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const size_t first = stack->size() - count;
  const std::string full = op.operator_name().name;
  const std::string name = full.substr(full.find("::") + 2);
  const bool copies = name == "copy_";
  const bool indexing = name.find("index") != std::string::npos;

  given.assign(stack->end() - static_cast<long>(count), stack->end());

  // On which device?
  c10::Device device(CUDA, -1);
  bool non_blocking = false;
  Tensors changed;
  for (size_t i = 0; i < count; i++) {
    const auto& value = (*stack)[first + i];
    seen.add(value);
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite()) changed.add(value);
    if (value.isDevice() && value.toDevice().type() == CUDA)
      device = c10::Device(CUDA, value.toDevice().index() < 0 ? current : value.toDevice().index());
    if (schema.arguments()[i].name() == "non_blocking" && value.isBool()) non_blocking = value.toBool();
  }
  if (copies) {
    device = seen.simulated.at(0).device();
  } else {
    for (const auto& tensor : seen.simulated) {
      TORCH_CHECK(device.index() < 0 || device == tensor.device(), "Expected all tensors to be on the same device, but ",
                  "found at least two devices, ", device, " and ", tensor.device(), "! (", full, ")");
      device = tensor.device();
    }
    for (const auto& tensor : seen.host)
      TORCH_CHECK(tensor.dim() == 0 || indexing, "Expected all tensors to be on the same device, but found at least ",
                  "two devices, ", device, " and cpu! (", full, ")");
  }
  TORCH_CHECK(device.index() >= 0 && device.index() < devices, "CUDA error: invalid device ordinal ", device);
  const Queue queue{device.index(), streams[device.index()]};

  // What does it cost?
  const bool view = VIEWS.count(name) > 0;
  bool waits = WAITS.count(name) > 0;
  if (name == "repeat_interleave" && op.operator_name().overload_name == "Tensor") waits = (*stack)[first + 1].isNone();
  if (indexing) {
    for (const auto& tensor : seen.host) waits |= tensor.dim() > 0;
    for (size_t i = 1; i < seen.simulated.size(); i++)
      waits |= seen.simulated[i].scalar_type() == at::kBool || seen.simulated[i].scalar_type() == at::kByte;
  }
  bool to_host = false;
  std::optional<Queue> source;
  if (copies) {
    const at::Tensor &to = (*stack)[first].toTensor(), &from = (*stack)[first + 1].toTensor();
    to_host = to.device().is_cpu();
    if (from.device().is_cpu()) {
      // Memory that is not pinned is copied by the driver first, for which the host waits.
      waits = from.dim() > 0 && !(non_blocking && is_pinned(from.storage().data()));
    } else if (to_host) {
      waits = !(non_blocking && is_pinned(to.storage().data()));
    } else if (to.device() != from.device()) {
      // torch makes both streams wait for each other.
      const Queue other{from.device().index(), streams[from.device().index()]};
      const Queue own{device.index(), streams[device.index()]};
      merge(known[own], known[other]);
      merge(known[other], known[own]);
      source = other;
    }
  }
  const std::string counted = copies && to_host ? "copies to the host" : copies && seen.host.size() ? "copies to the device" : name;
  if (!view) kernels[counted]++;
  if (waits) kernels["waits: " + name]++;
  const bool looks_up = name == "index_select" || name == "embedding";  // It reads no more of the table than it writes.
  const bool puts = name == "index_copy_";  // It writes what it reads of the source, and leaves the rest.
  const bool fills = name == "zero_" || name == "fill_";
  for (size_t i = looks_up || puts || fills; !view && i < seen.simulated.size(); i++)
    bytes[counted] += static_cast<long>(seen.simulated[i].nbytes()) * (puts ? 2 : 1);

  // Has this stream waited for those that write what it reads?
  long time = 0;
  if (!view) {
    merge(known[queue], known[HOST]);  // What the host has waited for has happened.
    time = ++known[queue][queue];
    if (source) known[*source][queue] = time;  // The copy itself runs on the stream that it reads from.
    Locked locked(leaf);
    const auto unseen = [&](const Queue& other, long when) { return other != queue && known[queue][other] < when; };
    for (const auto& tensor : seen.simulated) {
      auto written = tensor.has_storage() ? writers.find(tensor.storage().data()) : writers.end();
      if (written != writers.end() && unseen(written->second.queue, written->second.time))
        problems.push_back(full + " on " + device.str() + " uses what another stream writes, without waiting for it");
    }
    for (const auto& tensor : changed.simulated)
      if (tensor.has_storage() && tensor.storage().data())
        for (const auto& [other, when] : users[tensor.storage().data()])
          if (unseen(other, when))
            problems.push_back(full + " on " + device.str() + " changes what another stream uses, without waiting for it");
    for (const auto& tensor : seen.simulated)
      if (tensor.has_storage() && tensor.storage().data()) users[tensor.storage().data()][queue] = time;
    for (const auto& tensor : changed.simulated)
      if (tensor.has_storage() && tensor.storage().data()) writers[tensor.storage().data()] = {queue, time};
  } else if (name == "record_stream") {
    Locked locked(leaf);
    recorded.insert(seen.simulated.at(0).storage().data());
  }

  // Run it on the host.
  const Draws draws(op, device.index());
  for (size_t i = 0; i < count; i++) {
    auto value = translation.host((*stack)[first + i]);
    if (schema.arguments()[i].name() == "pin_memory") value = c10::IValue();
    arguments.push_back(value);
  }
  if ((name == "_softmax" || name == "_log_softmax") && arguments[2].toBool()) {  // The CPU has no conversion in it.
    arguments[0] = arguments[0].toTensor().to(at::kFloat);
    arguments[2] = false;
  }
  const auto destination = copies ? (*stack)[first].toTensor() : at::Tensor();
  stack->erase(stack->end() - static_cast<long>(count), stack->end());
  const bool later = copies && to_host && !waits;
  if (later) {
    // The copy happens when the host waits for it. Until then its memory holds garbage.
    auto snapshot = at::empty(destination.sizes(), destination.options().pinned_memory(false));
    snapshot = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), destination.storage().nbytes(),
                     c10::GetDefaultCPUAllocator()->allocate(destination.storage().nbytes()),
                     c10::GetDefaultCPUAllocator(), true),
        c10::DispatchKeySet(c10::DispatchKey::CPU), destination.dtype());
    snapshot.unsafeGetTensorImpl()->set_sizes_and_strides(destination.sizes(), destination.strides(),
                                                          destination.storage_offset());
    std::memcpy(snapshot.storage().mutable_data(), destination.storage().data(), destination.storage().nbytes());
    torch::jit::Stack copy{snapshot, arguments[1], false};
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &copy);
    for (const auto& other : pending)
      if (other.to.defined() && other.to.storage().data() == destination.storage().data())
        problems.push_back("two copies are written to the same pinned memory, and the host has waited for neither");
    // Not the tensor that Python knows: to drop that takes Python's lock.
    const auto same = shaped(destination.storage(), destination, c10::DispatchKey::CPU);
    pending.push_back({queue, time, snapshot, same, nullptr, destination.storage().nbytes(), 0});
    auto* place = static_cast<char*>(destination.mutable_data_ptr());
    if (destination.is_contiguous()) std::memset(place, 0xFF, destination.nbytes());
    stack->push_back(destination);
  } else {
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    if (copies && !waits && seen.host.size() && seen.host[0].dim()) {
      const auto& from = seen.host[0];
      if (from.is_contiguous())
        pending.push_back({queue, time, {}, {}, from.data_ptr(), from.nbytes(), sum_of(from.data_ptr(), from.nbytes())});
    }
  }
  if (waits) host_waits(known[queue]);
  translation.write_back();

  // Results are the device's.
  const size_t start = stack->size() - schema.returns().size();
  for (size_t i = start; i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (to_host || name == "_local_scalar_dense" || name == "_fused_sdp_choice") continue;
    value = translation.device(value, device);
    Tensors results;
    results.add(value);
    for (const auto& tensor : results.simulated) {
      if (view || !tensor.has_storage() || !tensor.storage().data()) continue;
      if (!copies && !puts) bytes[counted] += static_cast<long>(tensor.nbytes()) * (looks_up ? 2 : 1);
      Locked locked(leaf);
      writers[tensor.storage().data()] = {queue, time};
      users[tensor.storage().data()][queue] = time;
    }
  }
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Held held;
  Locked locked(state);
  run(op, stack, held);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  On on(device ? device->index() : -1);
  auto made = at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::SIMULATED),
                                        dtype.value_or(at::kFloat), format);
  return made;
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  On on(device ? device->index() : -1);
  auto made = at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::SIMULATED),
                                                dtype.value_or(at::kFloat));
  return made;
}

// ------------------------------------------------------------------------------------------- attention kernels

constexpr int64_t GRID = 65535;
int64_t most_rows = GRID;  // Of the grid of a kernel.

// Rows of tokens laid end to end, as flash attention takes them; checked as its kernels check them.
void check_flash(const std::vector<at::Tensor>& tensors, const at::Tensor& rows_q, const at::Tensor& rows_k) {
  const auto& query = tensors[0];
  const int64_t dim = query.size(2);
  TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.scalar_type() == query.scalar_type(), "query, key and value must have the same dtype");
    TORCH_CHECK(tensor.dim() == 3 && tensor.size(0) == query.size(0) && tensor.size(2) == dim, "wrong shape");
    TORCH_CHECK(tensor.stride(-1) == 1, "last dimension must be contiguous");
    // Kernels read 16 bytes at a time.
    const auto place = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    TORCH_CHECK(place % 16 == 0 && tensor.stride(0) % 8 == 0 && tensor.stride(1) % 8 == 0, "misaligned address");
  }
  TORCH_CHECK(rows_q.numel() - 1 <= most_rows, "CUDA error: invalid configuration argument");
  TORCH_CHECK(dim % 8 == 0, "head_size must be a multiple of 8, this is ensured by padding!");
  TORCH_CHECK(dim <= 256, "FlashAttention only supports head dimension at most 256");
  TORCH_CHECK(query.size(1) % tensors[1].size(1) == 0, "Number of heads in key/value must divide number of heads in query");
  TORCH_CHECK(rows_q.scalar_type() == at::kInt && rows_k.scalar_type() == at::kInt, "cu_seqlens must have dtype int32");
  TORCH_CHECK(rows_q.is_contiguous() && rows_k.is_contiguous(), "cu_seqlens must be contiguous");
}

// Whether dropout keeps a weight; one byte decides, as in the kernel.
bool keeps(uint64_t seed, int64_t head, int64_t i, int64_t j, double dropout) {
  uint64_t x = seed;
  for (const int64_t part : {head, i, j}) {
    x += 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(part);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    x ^= x >> 31;
  }
  return static_cast<double>(x & 0xFF) <= std::floor((1 - dropout) * 255);
}

// The keys [low, high) that a query sees, for every query and head.
template <class Function>
void each_query(const at::Tensor& rows, int64_t tokens, int64_t heads, int64_t longest, int64_t before, int64_t after,
                Function&& function) {
  const int* offsets = rows.data_ptr<int>();
  for (int64_t row = 0; row + 1 < rows.numel(); row++) {
    const int64_t from = offsets[row], to = offsets[row + 1];
    TORCH_CHECK(from <= to && to <= tokens, "an illegal memory access was encountered");
    TORCH_CHECK(to - from <= longest, "a row is longer than max_q");
    for (int64_t head = 0; head < heads; head++)
      for (int64_t i = from; i < to; i++)
        function(head, i, before < 0 ? from : std::max(from, i - before), after < 0 ? to : std::min(to, i + after + 1));
  }
}

double product(const float* a, const float* b, int64_t dim) {
  double sum = 0;
  for (int64_t d = 0; d < dim; d++) sum += static_cast<double>(a[d]) * b[d];
  return sum;
}

at::Tensor floats(const at::Tensor& tensor) { return tensor.to(at::kFloat).contiguous(); }

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& rows_q,
    const std::optional<at::Tensor>& rows_k, int64_t max_q, int64_t max_k, double dropout, bool causal, bool,
    std::optional<double> scale, std::optional<int64_t> left, std::optional<int64_t> right,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
    std::optional<int64_t>) {
  TORCH_CHECK(rows_q && rows_k, "cu_seqlens must be given");
  check_flash({query, key, value}, *rows_q, *rows_k);
  TORCH_CHECK(dropout >= 0 && dropout < 1, "p_dropout must be in [0, 1)");
  const int64_t tokens = query.size(0), heads = query.size(1), dim = query.size(2), key_heads = key.size(1);
  const auto q = floats(query), k = floats(key), v = floats(value);
  auto out = at::zeros(query.sizes(), q.options());
  auto sums = at::zeros({heads, tokens}, q.options());
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(dim)));
  const float *qs = q.data_ptr<float>(), *ks = k.data_ptr<float>(), *vs = v.data_ptr<float>();
  float *outs = out.data_ptr<float>(), *logs = sums.data_ptr<float>();
  // The seed is drawn from the generator, so that who restores its state has the same dropout again.
  auto seeds = at::zeros({2}, at::kLong);
  if (dropout > 0) seeds.fill_(at::randint(1L << 40, {}, at::kLong));
  const auto seed = static_cast<uint64_t>(seeds.data_ptr<int64_t>()[0]);
  std::vector<double> scores;
  each_query(*rows_q, tokens, heads, std::min(max_q, max_k), left.value_or(-1), causal ? 0 : right.value_or(-1),
             [&](int64_t head, int64_t i, int64_t low, int64_t high) {
    const int64_t other = head * key_heads / heads;
    scores.assign(static_cast<size_t>(high - low), 0);
    double greatest = -INFINITY, total = 0;
    for (int64_t j = low; j < high; j++) {
      scores[j - low] = product(qs + (i * heads + head) * dim, ks + (j * key_heads + other) * dim, dim) * factor;
      greatest = std::max(greatest, scores[j - low]);
    }
    for (auto& score : scores) total += score = std::exp(score - greatest);
    logs[head * tokens + i] = static_cast<float>(std::log(total) + greatest);
    for (int64_t j = low; j < high; j++) {
      if (!keeps(seed, head, i, j, dropout)) continue;
      const double weight = scores[j - low] / total / (1 - dropout);
      for (int64_t d = 0; d < dim; d++)
        outs[(i * heads + head) * dim + d] += static_cast<float>(weight * vs[(j * key_heads + other) * dim + d]);
    }
  });
  return {out.to(query.scalar_type()), sums, seeds.to(at::kUInt64), at::zeros({}, at::kUInt64), at::empty({0}, q.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& sums, const at::Tensor& rows_q, const at::Tensor& rows_k, int64_t max_q,
    int64_t max_k, double dropout, bool causal, const at::Tensor& state, const at::Tensor&, std::optional<double> scale,
    std::optional<int64_t> left, std::optional<int64_t> right) {
  check_flash({query, key, value, out, gradient.contiguous()}, rows_q, rows_k);
  const int64_t tokens = query.size(0), heads = query.size(1), dim = query.size(2), key_heads = key.size(1);
  TORCH_CHECK(sums.scalar_type() == at::kFloat && sums.size(0) == heads && sums.size(1) == tokens, "wrong logsumexp");
  TORCH_CHECK(state.scalar_type() == at::kUInt64 && state.numel() == 2, "wrong rng_state");
  const auto q = floats(query), k = floats(key), v = floats(value), o = floats(out), g = floats(gradient);
  auto of_q = at::zeros_like(q), of_k = at::zeros_like(k), of_v = at::zeros_like(v);
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(dim)));
  const float *qs = q.data_ptr<float>(), *ks = k.data_ptr<float>(), *vs = v.data_ptr<float>(), *os = o.data_ptr<float>();
  const float *gs = g.data_ptr<float>(), *logs = sums.data_ptr<float>();
  float *dq = of_q.data_ptr<float>(), *dk = of_k.data_ptr<float>(), *dv = of_v.data_ptr<float>();
  const uint64_t seed = state.data_ptr<uint64_t>()[0];
  each_query(rows_q, tokens, heads, std::min(max_q, max_k), left.value_or(-1), causal ? 0 : right.value_or(-1),
             [&](int64_t head, int64_t i, int64_t low, int64_t high) {
    const int64_t mine = (i * heads + head) * dim;
    const double mean = product(gs + mine, os + mine, dim);
    for (int64_t j = low; j < high; j++) {
      const int64_t theirs = (j * key_heads + head * key_heads / heads) * dim;
      const double p = std::exp(product(qs + mine, ks + theirs, dim) * factor - logs[head * tokens + i]);
      const double kept = keeps(seed, head, i, j, dropout) ? 1 / (1 - dropout) : 0;
      const double of_score = p * (product(gs + mine, vs + theirs, dim) * kept - mean) * factor;
      for (int64_t d = 0; d < dim; d++) {
        dq[mine + d] += static_cast<float>(of_score * ks[theirs + d]);
        dk[theirs + d] += static_cast<float>(of_score * qs[mine + d]);
        dv[theirs + d] += static_cast<float>(p * kept * gs[mine + d]);
      }
    }
  });
  const auto dtype = query.scalar_type();
  return {of_q.to(dtype), of_k.to(dtype), of_v.to(dtype)};
}

// Probabilities of scaled dot-product attention, and their dropout from a seed. Shape: (..., heads, rows, columns).
std::pair<at::Tensor, at::Tensor> probabilities(const at::Tensor& query, const at::Tensor& key,
                                                const std::optional<at::Tensor>& bias, bool causal, double scale) {
  auto scores = at::matmul(query, key.transpose(-2, -1)).mul_(scale);
  if (causal) {
    auto hidden = at::ones({query.size(-2), key.size(-2)}, scores.options().dtype(at::kBool)).triu(1);
    scores.masked_fill_(hidden, -INFINITY);
  }
  if (bias && bias->defined()) scores = scores + bias->to(at::kFloat);
  const auto sums = at::logsumexp(scores, {-1});
  return {(scores - sums.unsqueeze(-1)).exp(), sums};
}

at::Tensor kept(const at::Tensor& like, double dropout, int64_t seed) {
  if (dropout == 0) return at::ones_like(like);
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::empty_like(like).bernoulli_(1 - dropout, generator).div_(1 - dropout);
}

double factor_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& bias, bool,
    double dropout, bool causal, std::optional<double> scale) {
  TORCH_CHECK(query.size(0) <= most_rows, "CUDA error: invalid configuration argument");
  const auto [p, sums] = probabilities(query.to(at::kFloat), key.to(at::kFloat), bias, causal, factor_of(query, scale));
  const auto seed = dropout ? at::randint(1L << 40, {}, at::kLong) : at::zeros({}, at::kLong);
  const auto out = at::matmul(p * kept(p, dropout, seed.item<int64_t>()), value.to(at::kFloat));
  return {out.to(query.scalar_type()), sums, seed, at::zeros({}, at::kLong)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, const at::Tensor& out, const at::Tensor&, const at::Tensor& seed, const at::Tensor&,
    double dropout, std::array<bool, 4> wanted, bool causal, std::optional<double> scale) {
  const double factor = factor_of(query, scale);
  const auto q = query.to(at::kFloat), k = key.to(at::kFloat), v = value.to(at::kFloat), g = gradient.to(at::kFloat);
  const auto [p, sums] = probabilities(q, k, bias, causal, factor);
  const auto mask = kept(p, dropout, seed.item<int64_t>());
  const auto of_p = at::matmul(g, v.transpose(-2, -1)) * mask;
  const auto of_scores = p * (of_p - (g * out.to(at::kFloat)).sum(-1, true));
  const auto dtype = query.scalar_type();
  return {(at::matmul(of_scores, k) * factor).to(dtype), (at::matmul(of_scores.transpose(-2, -1), q) * factor).to(dtype),
          at::matmul((p * mask).transpose(-2, -1), g).to(dtype), wanted[3] ? of_scores.to(dtype) : at::Tensor()};
}

// A product of half precision whose sums are float32; the CPU has none.
at::Tensor half_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected mat1 and mat2 to have the same dtype");
  TORCH_CHECK(dtype == a.scalar_type() || (dtype == at::kFloat && (a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16)),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  return at::mm(a.to(at::kFloat), b.to(at::kFloat)).to(dtype);
}

// 0: math, 2: the memory-efficient kernel, which takes any mask and dtype.
int64_t choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor&, const std::optional<at::Tensor>&,
               double, bool, std::optional<double>, bool) {
  return query.size(-3) == key.size(-3) && query.scalar_type() != at::kDouble ? 2 : 0;
}

// A CPU build of torch cannot ask other types than CUDA which kernel they have: they take the plain way.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                     bool grouped) {
  auto added = mask;
  if (mask && mask->scalar_type() == at::kBool)
    added = at::zeros(mask->sizes(), query.options()).masked_fill(mask->logical_not(), -INFINITY);
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, added, dropout, causal, {}, scale, grouped));
}
void add_attention(torch::Library& library) {
  if (CUDA != c10::DeviceType::CUDA) library.impl("scaled_dot_product_attention", &attention);
}

// An operation by the steps that torch has for devices without a kernel of their own.
void in_steps(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}

}  // namespace

C10_REGISTER_GUARD_IMPL(SIMULATED, Guard)

// What Python passes by the dispatcher.
TORCH_LIBRARY_FRAGMENT(NAMED(simulated_, SIMULATED, ), library) {
  library.def("set_generator(Generator? generator, int device) -> ()", &set_generator);
}

TORCH_LIBRARY_IMPL(_, SIMULATED, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
TORCH_LIBRARY_IMPL(aten, NAMED(Autograd, SIMULATED, ), library) { add_attention(library); }
// Before the operations of the device: those that the CPU has only now are then its operations, too, which a torch
// that is built with CUDA would run by itself.
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_flash_attention_forward", &flash);
  library.impl("mm.dtype", &half_product);
  library.impl("_flash_attention_backward", &flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", &efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
}
TORCH_LIBRARY_IMPL(aten, SIMULATED, library) {
  add_attention(library);
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_fused_sdp_choice", &choice);
  // What the CPU has a kernel for is one kernel here, too, even if torch has a slower way for all other devices.
  const std::set<std::string> own = {"aten::empty.memory_format", "aten::empty_strided", "aten::_fused_sdp_choice"};
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (name.name.rfind("aten::", 0) || own.count(full) || !op) continue;
    if (full == "aten::copy_" || op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    else if (op->hasKernelForDispatchKey(c10::DispatchKey::SIMULATED))  // Of a torch that is built with CUDA.
      library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&in_steps>());
  }
}

// ------------------------------------------------------------------------------------------ what Python calls

extern "C" {

// torch keeps the hooks that it finds first, and those of a CPU build say that there is no CUDA: replace them.
void simulated_start() {
  static_assert(sizeof(at::SimulatedHooks) == sizeof(at::HOOKS));
  new (const_cast<at::HOOKS*>(&at::detail::NAMED(get, SIMULATED, Hooks)())) at::SimulatedHooks;
}
void simulated_stop() {
  devices = 0;
  torch::utils::set_requires_device_init(CUDA, true);
  new (const_cast<at::HOOKS*>(&at::detail::NAMED(get, SIMULATED, Hooks)())) at::HOOKS;
}

void simulated_reset(int number) {
  Locked locked(state);
  devices = number;
  kernels.clear();
  bytes.clear();
  known.clear();
  writers.clear();
  users.clear();
  recorded.clear();
  freed_memory.clear();
  problems.clear();
  pending.clear();
  current = 0;
  streams.fill(0);
  limit = fail_at = -1;
  most_rows = GRID;
  allocations = 0;
  most_used = used;
}
void simulated_grid(long rows) { most_rows = rows; }
void simulated_memory(long most, long failing) {
  Locked locked(leaf);
  limit = most;
  fail_at = failing < 0 ? -1 : allocations + failing;
}
long simulated_used() { return used; }
long simulated_most_used() { return most_used; }

int simulated_device() { return current; }
void simulated_set_device(int index) { current = static_cast<c10::DeviceIndex>(index); }
long simulated_stream(int device) { return streams[device]; }
void simulated_set_stream(int device, long stream) { streams[device] = stream; }
long simulated_new_stream() {
  Locked locked(state);
  return ++last_stream;
}
void* simulated_new_event() { return new Event; }
void simulated_free_event(void* event) { delete static_cast<Event*>(event); }
void simulated_record(void* event, int device, long stream) {
  Locked locked(state);
  judge_freed_memory();
  static_cast<Event*>(event)->clock = known[{device, stream}];
}
void simulated_wait_event(void* event, int device, long stream) {
  Locked locked(state);
  judge_freed_memory();
  merge(known[{device, stream}], static_cast<Event*>(event)->clock);
}
void simulated_synchronize_event(void* event) {
  Locked locked(state);
  kernels["waits: event"]++;
  host_waits(static_cast<Event*>(event)->clock);
}
void simulated_synchronize(int device, long stream) {
  Locked locked(state);
  kernels["waits: stream"]++;
  if (stream >= 0) return host_waits(known[{device, stream}]);
  for (auto& [queue, clock] : std::map<Queue, Clock>(known)) host_waits(clock);
}

// Counters as lines of "name<tab>number"; what starts with "!" is a problem.
const char* simulated_report() {
  Locked locked(state);
  free_pinned();
  judge_freed_memory();
  static std::string text;
  std::ostringstream out;
  for (const auto& [name, number] : kernels) out << "kernel " << name << '\t' << number << '\n';
  for (const auto& [name, number] : bytes) out << "bytes " << name << '\t' << number << '\n';
  for (const auto& problem : problems) out << '!' << problem << '\t' << 1 << '\n';
  text = out.str();
  return text.c_str();
}
}
