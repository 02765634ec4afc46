package checkpointtest

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"
)

// Disk has the methods of a checkpoint.Store. The zero value is an empty disk without
// faults. All methods may be called from any goroutine.
type Disk struct {
	mu      sync.Mutex
	values  map[string]string
	damaged map[string]bool
	fault   Fault
	calls   []string
	counts  map[string]int
}

// Fault is asked before a call has an effect. It may block. If it returns an error, the call has
// no effect and returns the error. The call is read, write, delete or keys; the key of keys is "".
type Fault func(call, key string) error

// selects reports whether names is empty, or contains the call or the key.
func selects(names []string, call, key string) bool {
	return len(names) == 0 || slices.Contains(names, call) || slices.Contains(names, key)
}

// Fail returns a fault that makes calls return err. If names are given, only those calls fail whose
// call or key is one of the names.
func Fail(err error, of ...string) Fault {
	return func(call, key string) error {
		if selects(of, call, key) {
			return err
		}
		return nil
	}
}

// Hang returns a fault that makes calls wait until the channel is closed. It selects calls by names
// as [Fail] does.
func Hang(until <-chan struct{}, of ...string) Fault {
	return func(call, key string) error {
		if selects(of, call, key) {
			<-until
		}
		return nil
	}
}

// Slow returns a fault that makes calls take at least d. It selects calls by names as [Fail] does.
func Slow(d time.Duration, of ...string) Fault {
	return func(call, key string) error {
		if selects(of, call, key) {
			time.Sleep(d)
		}
		return nil
	}
}

// Fault sets the fault of later calls; nil for none.
func (d *Disk) Fault(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Put sets a value, whatever the fault.
func (d *Disk) Put(key, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(key, value)
}

func (d *Disk) put(key, value string) {
	if d.values == nil {
		d.values = map[string]string{}
	}
	d.values[key] = value
	delete(d.damaged, key)
}

// Damage damages a value: until it is written again, it is listed and cannot be read.
func (d *Disk) Damage(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.damaged == nil {
		d.damaged = map[string]bool{}
	}
	d.damaged[key] = true
}

// Value returns a value, whatever the fault; "" if there is none.
func (d *Disk) Value(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.values[key]
}

// Values returns a copy of all values, whatever the fault.
func (d *Disk) Values() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.values)
}

// Clone returns a disk with the same values and without faults, as another process finds it after
// a crash.
func (d *Disk) Clone() *Disk { return &Disk{values: d.Values()} }

// Calls returns and clears the calls so far: "read key", "write key", "delete key", "keys".
func (d *Disk) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

// Count returns the number of calls, such as write, that had an effect.
func (d *Disk) Count(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[call]
}

func (d *Disk) do(call, key string, fn func() error) error {
	d.mu.Lock()
	fault := d.fault
	name := call
	if key != "" {
		name += " " + key
	}
	d.calls = append(d.calls, name)
	d.mu.Unlock()
	if fault != nil {
		if err := fault(call, key); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[string]int{}
	}
	d.counts[call]++
	return fn()
}

// Read returns a value. If there is none, the error wraps fs.ErrNotExist.
func (d *Disk) Read(key string) (out []byte, err error) {
	err = d.do("read", key, func() error {
		v, ok := d.values[key]
		if !ok || d.damaged[key] {
			return fmt.Errorf("%s: %w", key, fs.ErrNotExist)
		}
		out = []byte(v)
		return nil
	})
	return out, err
}

// Write sets a value.
func (d *Disk) Write(key string, value []byte) error {
	return d.do("write", key, func() error { d.put(key, string(value)); return nil })
}

// Delete removes a value, if there is one.
func (d *Disk) Delete(key string) error {
	return d.do("delete", key, func() error { delete(d.values, key); return nil })
}

// Keys returns the keys of all values, sorted.
func (d *Disk) Keys() (out []string, err error) {
	err = d.do("keys", "", func() error { out = slices.Sorted(maps.Keys(d.values)); return nil })
	return out, err
}
