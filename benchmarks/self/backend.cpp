// An accelerator from outside of torch, for `backend.py`: streams are threads, events carry times,
// and a log says when each task began and ended. Whoever waits for an event waits for its newest
// record. Tensors are there to be added to; nothing is computed.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <time.h>
#include <torch/extension.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

namespace {

constexpr DeviceType kKind = DeviceType::PrivateUse1;
constexpr int64_t kBytesPerNs = 100;

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

struct Event {
  long recorded = 0, reached = 0;
  int64_t stamp_ns = 0;
};
enum Kind { TASK, MARK, WAIT };
struct Item {
  Kind kind;
  int64_t ns = 0;
  Event* event = nullptr;
  long record = 0;
  int tag = 0;
};
struct Queue {
  std::deque<Item> items;
  long pending = 0;
};

// Never destroyed: threads wait on these while the process ends, and it would wait for them.
auto& mutex = *new std::mutex;
auto& changed = *new std::condition_variable;
auto* queues = new Queue[64];
int made = 0;
auto& log_ = *new std::vector<std::tuple<int, int64_t, int64_t>>;
thread_local int current = 0;

void run(int64_t ns) {
  const int64_t end = now_ns() + ns, nap = ns - 200000;
  if (nap > 100000) {
    timespec t{nap / 1000000000, nap % 1000000000};
    nanosleep(&t, nullptr);
  }
  while (now_ns() < end) {
  }
}

void work(int i) {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return !queues[i].items.empty(); });
    Item item = queues[i].items.front();
    queues[i].items.pop_front();
    if (item.kind == WAIT) {
      changed.wait(lock, [&] { return item.event->reached == item.event->recorded; });
    } else if (item.kind == MARK) {
      item.event->reached = item.record;
      item.event->stamp_ns = now_ns();
    } else {
      lock.unlock();
      const int64_t begin = now_ns();
      run(item.ns);
      const int64_t end = now_ns();
      lock.lock();
      log_.push_back({item.tag, begin, end});
    }
    queues[i].pending--;
    changed.notify_all();
  }
}

int new_queue() {
  std::lock_guard<std::mutex> lock(mutex);
  const int i = made++;
  std::thread(work, i).detach();
  return i;
}

void first_queue() {
  static int first = new_queue();
  (void)first;
}

void put(int i, Item item) {
  std::lock_guard<std::mutex> lock(mutex);
  if (item.kind == MARK) item.record = ++item.event->recorded;
  queues[i].items.push_back(item);
  queues[i].pending++;
  changed.notify_all();
}

template <class Condition>
void until(Condition condition) {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, condition);
}

bool is_reached(void* event) {
  auto* e = static_cast<Event*>(event);
  return !e || e->reached == e->recorded;
}

bool is_idle() {
  for (int i = 0; i < made; i++)
    if (queues[i].pending) return false;
  return true;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kKind; }
  Device exchangeDevice(Device) const override { return Device(kKind, 0); }
  Device getDevice() const override { return Device(kKind, 0); }
  void setDevice(Device d) const override { TORCH_CHECK(d.index() <= 0, "there is one device"); }
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream stream(int i) const {
    first_queue();
    return Stream(Stream::UNSAFE, Device(kKind, 0), i);
  }
  Stream getStream(Device) const override { return stream(current); }
  Stream getDefaultStream(Device) const override { return stream(0); }
  Stream getNewStream(Device, int) const override {
    first_queue();
    return stream(new_queue());
  }
  Stream exchangeStream(Stream s) const override {
    const int before = current;
    current = s.id();
    return stream(before);
  }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** e, const Stream& s, const DeviceIndex, const c10::EventFlag) const override {
    if (!*e) *e = new Event;
    put(s.id(), {MARK, 0, static_cast<Event*>(*e)});
  }
  void block(void* e, const Stream& s) const override {
    if (e) put(s.id(), {WAIT, 0, static_cast<Event*>(e)});
  }
  bool queryEvent(void* e) const override {
    std::lock_guard<std::mutex> lock(mutex);
    return is_reached(e);
  }
  bool queryStream(const Stream& s) const override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues[s.id()].pending == 0;
  }
  void synchronizeStream(const Stream& s) const override {
    until([&] { return queues[s.id()].pending == 0; });
  }
  void synchronizeEvent(void* e) const override {
    until([&] { return is_reached(e); });
  }
  void synchronizeDevice(const DeviceIndex) const override { until(is_idle); }
  double elapsedTime(void* a, void* b, const DeviceIndex) const override {
    std::lock_guard<std::mutex> lock(mutex);
    TORCH_CHECK(is_reached(a) && is_reached(b), "both events must be completed");
    return (static_cast<Event*>(b)->stamp_ns - static_cast<Event*>(a)->stamp_ns) * 1e-6;
  }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
};

void give_back(void* p) { free(p); }

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* p = malloc(n ? n : 1);
    return {p, p, &give_back, Device(kKind, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t n) const override { memcpy(to, from, n); }
};

Memory memory;
Hooks hooks;
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, kKeys,
                                   type.value_or(at::kFloat), format);
}

at::Tensor& add_(at::Tensor& x, const at::Tensor&, const at::Scalar&) {
  first_queue();
  put(current, {TASK, 2 * static_cast<int64_t>(x.nbytes()) / kBytesPerNs});
  return x;
}

at::Tensor& zero_(at::Tensor& x) {
  first_queue();
  put(current, {TASK, static_cast<int64_t>(x.nbytes()) / kBytesPerNs});
  return x;
}

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);
REGISTER_ALLOCATOR(kKind, &memory);
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("add_.Tensor", add_);
  m.impl("zero_", zero_);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("begin", [] { at::RegisterPrivateUse1HooksInterface(&hooks); });
  m.def("task", [](int64_t ns, int tag) {
    first_queue();
    put(current, {TASK, ns, nullptr, 0, tag});
  });
  m.def("log", [] {
    std::lock_guard<std::mutex> lock(mutex);
    return log_;
  });
}
