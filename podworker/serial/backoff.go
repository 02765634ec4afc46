package serial

import (
	"errors"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// Backoff is a delay that doubles with every failure in a row. It has no jitter, since the keys of
// one process rarely fail at the same time. A handler that wants jitter returns [Again] with a
// delay of its own. The zero value of a field means the default named beside it.
type Backoff struct {
	First time.Duration // after the first failure; the default is 1 s
	Max   time.Duration // the longest delay; the default is 1 min, or First if First is longer
}

const (
	defaultFirst = time.Second
	defaultMax   = time.Minute
)

func (b Backoff) withDefaults() Backoff {
	if b.First == 0 {
		b.First = defaultFirst
	}
	if b.Max == 0 {
		b.Max = max(defaultMax, b.First)
	}
	return b
}

func (b Backoff) validate() error {
	var errs []error
	if b.First < 0 {
		errs = append(errs, fmt.Errorf("field Backoff.First is %v; want a positive duration", b.First))
	}
	if b.Max < 0 {
		errs = append(errs, fmt.Errorf("field Backoff.Max is %v; want a positive duration", b.Max))
	}
	return errors.Join(errs...)
}

// Delay returns the delay after so many failures in a row; failures is at least 1.
func (b Backoff) Delay(failures int) time.Duration {
	b = b.withDefaults()
	return retry.Backoff{First: b.First, Max: b.Max}.After(failures)
}
