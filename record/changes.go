package record

// Changes distinguishes changed states from repeated ones, for a part that gets entries and is not
// a [Recorder]. The zero value is ready. Only one goroutine at a time may use it.
type Changes struct {
	// recent has the last state of each key. A full recent becomes older, and the previous older
	// is dropped. A key that is passed again moves from older to recent.
	recent, older map[uint64]uint32
}

// maxChanges limits the keys of each map.
const maxChanges = 1 << 15

// Next returns the fact of an entry in JSON, and reports whether the entry is an event, or a state
// that differs from the last one of the same object. If there are too many objects, older states
// are dropped, and an unchanged state may count as changed.
func (c *Changes) Next(e *Entry) (fact []byte, changed bool) {
	fact = encode(e.Fact)
	key, state := keyOf(e, fact)
	if key == 0 {
		return fact, true
	}
	last, has := c.recent[key]
	if !has {
		last, has = c.older[key]
	}
	if len(c.recent) >= maxChanges {
		c.recent, c.older = nil, c.recent
	}
	if c.recent == nil {
		c.recent = map[uint64]uint32{}
	}
	if has || !e.Fact.idle() {
		c.recent[key] = state
	}
	return fact, isNews(last, has, state, e.Fact.idle())
}

// isNews reports whether a state differs from the last one of the same object. Without a last one,
// has is false: then every state is news, unless it is idle.
func isNews(last uint32, has bool, state uint32, idle bool) bool {
	if has {
		return last != state
	}
	return !idle
}

// Forget makes the state of an entry count as changed the next time.
func (c *Changes) Forget(e *Entry) {
	key, _ := keyOf(e, encode(e.Fact))
	delete(c.recent, key)
	delete(c.older, key)
}
