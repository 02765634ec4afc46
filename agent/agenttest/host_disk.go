package agenttest

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// Disk is a [part.Store] in memory on which single keys hang or fail, as the test
// sets it. All methods may be called from any goroutine.
type Disk struct {
	mu     sync.Mutex
	values map[string]string
	hang   map[string]<-chan struct{}
	fail   map[string]error
	calls  []string
}

// NewDisk returns an empty disk without faults.
func NewDisk() *Disk {
	return &Disk{values: map[string]string{}, hang: map[string]<-chan struct{}{}, fail: map[string]error{}}
}

// Behave sets the behaviour of later calls for a key. If hang is not nil, the calls block until
// hang is closed. If fail is not nil, they then return fail. The key "" stands for the method
// Keys.
func (d *Disk) Behave(key string, hang <-chan struct{}, fail error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang[key], d.fail[key] = hang, fail
}

// Put sets a value. It works even if the key hangs or fails.
func (d *Disk) Put(key, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values[key] = value
}

// Value returns the value of a key. It returns "" if there is none.
func (d *Disk) Value(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.values[key]
}

// Calls returns and clears the recorded calls: "read key", "write key", "delete key", "keys".
func (d *Disk) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

func (d *Disk) do(call, key string, fn func() error) error {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	hang := d.hang[key]
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fail[key]; err != nil {
		return err
	}
	return fn()
}

// Read implements part.Store.
func (d *Disk) Read(key string) (out []byte, err error) {
	err = d.do("read "+key, key, func() error {
		v, ok := d.values[key]
		if !ok {
			return fmt.Errorf("%s: %w", key, fs.ErrNotExist)
		}
		out = []byte(v)
		return nil
	})
	return out, err
}

// Write implements part.Store.
func (d *Disk) Write(key string, value []byte) error {
	return d.do("write "+key, key, func() error { d.values[key] = string(value); return nil })
}

// Delete implements part.Store.
func (d *Disk) Delete(key string) error {
	return d.do("delete "+key, key, func() error { delete(d.values, key); return nil })
}

// Keys implements part.Store.
func (d *Disk) Keys() (out []string, err error) {
	err = d.do("keys", "", func() error { out = slices.Sorted(maps.Keys(d.values)); return nil })
	return out, err
}
