package serial

// Locked is a Manager that is locked by its caller.
type Locked[K comparable, U any] struct{ m *Manager[K, U] }

// Lock locks the Manager, for an embedder with state of its own that has to
// change together with the workers': it guards that state, too, and the hooks
// of [Config] are called with it held. Unlock has to follow.
func (m *Manager[K, U]) Lock() Locked[K, U] {
	m.mu.Lock()
	return Locked[K, U]{m}
}

// Unlock ends what [Manager.Lock] began.
func (m *Manager[K, U]) Unlock() { m.mu.Unlock() }

// Locked is for those who hold the lock: between Lock and Unlock, and in hooks.
func (m *Manager[K, U]) Locked() Locked[K, U] { return Locked[K, U]{m} }

// Update gives a key an update, which is delivered as soon as the key's
// handler is free, merged with those that wait already. It reports false, and
// does nothing, once Run's context has ended.
func (m *Manager[K, U]) Update(key K, u U) bool {
	l := m.Lock()
	defer m.Unlock()
	return l.Update(key, u)
}

// Again has a key called at once with its last update, unless a newer one
// waits already. A key that waits after an error is tried again. It reports
// whether the key is known.
func (m *Manager[K, U]) Again(key K) bool {
	l := m.Lock()
	defer m.Unlock()
	return l.Again(key)
}

// Interrupt does that, and cancels the call in flight, if there is one. A
// call that fails because of it does not count as a failure.
func (m *Manager[K, U]) Interrupt(key K) bool {
	l := m.Lock()
	defer m.Unlock()
	return l.Interrupt(key)
}

// Forget ends the life of a key, with all that waits for it. A call in flight
// is cancelled and what comes of it ignored; an update that comes meanwhile
// begins the key's next life when that call has returned.
func (m *Manager[K, U]) Forget(key K) {
	l := m.Lock()
	defer m.Unlock()
	l.Forget(key)
}

// State returns what the worker of a key is doing, and whether it is known.
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
