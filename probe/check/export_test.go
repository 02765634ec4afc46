package check

// Places returns how many checks that are not expensive have a place.
func (e *Engine) Places() int { return e.lanes[0].limit }

// Groups returns how many groups are remembered.
func (e *Engine) Groups() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fill(e.lanes[0]) // which drops those that only stopped probes wait for
	return len(e.lanes[0].groups) + len(e.lanes[1].groups)
}
