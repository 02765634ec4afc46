package hostchains

import (
	"context"
	"errors"
)

// EnsureHere is Ensure on the goroutine of the caller, whose thread may have a network
// namespace of its own.
func (m *Manager) EnsureHere(ctx context.Context) error {
	var errs []error
	for _, f := range families() {
		path, err := m.cfg.Find(f.program)
		for _, i := range f.items {
			if err == nil {
				_, err = m.item(ctx, path, i)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
