package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// fileName is the kubelet's name of the file, so that an agent that replaces a kubelet
// overwrites its file.
const fileName = "99-kubelet.conf"

// After a reload the delay is read until it has the wanted value: first after 100
// ms, and five times in all, as in the kubelet.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = 1600 * time.Millisecond
	looks     = 5
)

// contents returns the content of the file for a delay, in whole seconds, rounded up.
func contents(delay time.Duration) string {
	return fmt.Sprintf("# Written by the node agent: pods need this long to end.\n[Login]\nInhibitDelayMaxSec=%d\n",
		(delay+time.Second-1)/time.Second)
}

// raise makes logind wait for locks at least as long as wanted. It never lowers the
// delay: another agent of the machine may need it.
func (l *Machine) raise(ctx context.Context, b *bus, delay time.Duration) error {
	now, err := b.maxDelay(ctx)
	if err != nil {
		return fmt.Errorf("ask logind for InhibitDelayMaxUSec: %w", err)
	}
	if now >= delay {
		return nil
	}
	name := filepath.Join(l.cfg.Dir, fileName)
	if err := replace(name, contents(delay)); err != nil {
		return fmt.Errorf("raise logind's delay by %s: %w", name, err)
	}
	if err := b.reload(ctx); err != nil {
		return fmt.Errorf("have logind read its configuration: %w", err)
	}
	wait := retry.Backoff{First: firstLook, Max: lastLook}
	for range looks {
		if !wait.Wait(ctx) {
			return ctx.Err()
		}
		if now, err = b.maxDelay(ctx); err == nil && now >= delay {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("logind's InhibitDelayMaxSec is %v; want at least %v: another file, which sorts after %s, may set it", now, delay, name))
}

// replace writes a file in one step.
func replace(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	temp := name + ".tmp" // logind reads *.conf
	err := os.WriteFile(temp, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}
