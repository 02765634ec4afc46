package store

import (
	"context"
	"strconv"
	"sync"
)

// Memory is a Store in memory, which is lost at a restart. The zero value is ready to use.
type Memory struct {
	// mu guards all fields. n is the number of the last revision, and next the last reserved
	// number.
	mu   sync.Mutex
	docs map[string]Document
	n    int
	next uint64
}

var _ Store = (*Memory)(nil)

// Load returns the documents that were put into this value.
func (m *Memory) Load(context.Context) ([]Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Document
	for _, d := range m.docs {
		out = append(out, d)
	}
	return out, nil
}

// Put implements Store.
func (m *Memory) Put(d Document, was string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.docs[d.Name].Revision != was {
		return "", ErrConflict
	}
	if m.docs == nil {
		m.docs = map[string]Document{}
	}
	m.n++
	d.Revision = strconv.Itoa(m.n)
	m.docs[d.Name] = d
	return d.Revision, nil
}

// Delete implements Store.
func (m *Memory) Delete(name, was string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.docs[name]; ok && d.Revision != was {
		return ErrConflict
	}
	delete(m.docs, name)
	return nil
}

// Reserve implements Store.
func (m *Memory) Reserve(n uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.next + 1
	m.next += n
	return first, nil
}

// Watch waits until ctx ends, since no one else changes documents.
func (*Memory) Watch(ctx context.Context, _ func([]Document)) error {
	<-ctx.Done()
	return nil
}
