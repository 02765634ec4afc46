package serial

// Locked has the methods of a Manager for callers that hold the Manager's lock.
type Locked[K comparable, U any] struct{ m *Manager[K, U] }

// Lock locks the Manager. It is for programs whose own state has to change together with the state
// of the workers: the lock can guard both, and the hooks of [Config] are called while it is held.
// The caller has to call Unlock.
func (m *Manager[K, U]) Lock() Locked[K, U] {
	m.mu.Lock()
	return Locked[K, U]{m}
}

// Unlock releases the lock that [Manager.Lock] took.
func (m *Manager[K, U]) Unlock() { m.mu.Unlock() }

// Locked returns the methods for callers that hold the lock: between Lock and Unlock, and in hooks.
func (m *Manager[K, U]) Locked() Locked[K, U] { return Locked[K, U]{m} }

// Update gives a key an update. It is merged with a pending one, and delivered as soon as the key's
// handler has returned. Once Run's context has ended, Update does nothing and returns false.
func (m *Manager[K, U]) Update(key K, u U) bool {
	l := m.Lock()
	defer m.Unlock()
	return l.Update(key, u)
}

// Again calls the key's handler at once with the last update, or with the pending one. It ends a
// wait after an error. It reports whether the key is known.
func (m *Manager[K, U]) Again(key K) bool {
	l := m.Lock()
	defer m.Unlock()
	return l.Again(key)
}

// Interrupt is [Manager.Again], and also cancels the call in flight. A call that fails because it
// was cancelled does not count as a failure.
func (m *Manager[K, U]) Interrupt(key K) bool {
	l := m.Lock()
	defer m.Unlock()
	return l.Interrupt(key)
}

// Forget removes a key with its pending update. A call in flight is cancelled and its result
// ignored. If an update comes before the call has returned, the key begins anew with this update
// afterwards.
func (m *Manager[K, U]) Forget(key K) {
	l := m.Lock()
	defer m.Unlock()
	l.Forget(key)
}

// State returns what the worker of a key is doing, and whether the key is known.
func (m *Manager[K, U]) State(key K) (State[K], bool) {
	l := m.Lock()
	defer m.Unlock()
	return l.State(key)
}

// List returns what every worker is doing, in no order.
func (m *Manager[K, U]) List() []State[K] {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]State[K], 0, len(m.workers))
	for _, w := range m.workers {
		all = append(all, w.state())
	}
	return all
}
