package devicetest

import (
	"context"
	"strings"
	"sync"
)

// calls are the calls of a plugin or driver.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) note(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call)
}

// Called returns and clears the calls so far, such as "allocate a,b; prestart a,b".
func (c *calls) Called() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.list, "; ")
	c.list = nil
	return s
}

// Count returns how many calls since the last Called begin with a text.
func (c *calls) Count(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.list {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

// Hang returns the error of ctx when it ends. It is a value for the functions of a Plugin.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
