package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/zap"
)

// Config holds the settings of a [Machine]. The zero value of each field means
// the default named beside it.
type Config struct {
	// Address is the address of the bus. The default is the system bus (DBUS_SYSTEM_BUS_ADDRESS,
	// or its well-known socket).
	Address string
	// Dir is the directory of the file that raises the delay. The default is
	// /etc/systemd/logind.conf.d.
	Dir string
	// Who is the name of the lock's owner. The default is kubelet.
	Who string
	Log *zap.Logger // if nil, nothing is logged
}

// callTimeout limits one call over the bus, and the connection.
const callTimeout = 10 * time.Second

// Machine watches systemd-logind, and implements shutdown.Machine. It may be used
// from any goroutine; only one may call Watch at a time.
type Machine struct {
	cfg Config

	mu   sync.Mutex
	lock *os.File // nil if nothing delays the shutdown
}

// New returns a Machine. It makes no call before Watch.
func New(cfg Config) *Machine {
	if cfg.Dir == "" {
		cfg.Dir = "/etc/systemd/logind.conf.d"
	}
	if cfg.Who == "" {
		cfg.Who = "kubelet"
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Machine{cfg: cfg}
}

// Watch implements shutdown.Machine.
func (l *Machine) Watch(ctx context.Context, delay time.Duration, on func(down bool)) error {
	b, err := l.connect(ctx)
	if err != nil {
		return fmt.Errorf("D-Bus: %w", err)
	}
	defer b.close()
	err = l.watch(ctx, b, delay, on)
	if ctx.Err() != nil {
		l.Release()
		return nil
	}
	return err
}

func (l *Machine) watch(ctx context.Context, b *bus, delay time.Duration, on func(down bool)) error {
	// Before the state is read, so that no change is missed.
	signals, err := b.subscribe(ctx)
	if err != nil {
		return fmt.Errorf("subscribe to PrepareForShutdown: %w", err)
	}
	down, err := b.preparing(ctx)
	if err != nil {
		return fmt.Errorf("ask logind: %w", err)
	}
	on(down)
	if !down { // no new locks are possible during a shutdown
		if err := l.raise(ctx, b, delay); err != nil {
			return err
		}
		if err := l.take(ctx, b); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.conn.Context().Done():
			return errors.New("the D-Bus connection is lost")
		case s, ok := <-signals:
			if !ok {
				return errors.New("the D-Bus connection is lost")
			}
			var down bool
			if s.Name != logindManager+".PrepareForShutdown" || dbus.Store(s.Body, &down) != nil {
				continue // another signal, which only a broken bus sends here
			}
			on(down)
			if !down {
				if err := l.take(ctx, b); err != nil {
					return err
				}
			}
		}
	}
}

const messageLocked = "shutdowns of the machine wait for pods"

// take takes a new delay lock, and then releases the old one.
func (l *Machine) take(ctx context.Context, b *bus) error {
	fd, err := b.inhibit(ctx, l.cfg.Who)
	if err != nil {
		return fmt.Errorf("take a delay lock: %w", err)
	}
	l.mu.Lock()
	old := l.lock
	l.lock = os.NewFile(uintptr(fd), "logind lock")
	l.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	l.cfg.Log.Info(messageLocked)
	return nil
}

// Release implements shutdown.Machine.
func (l *Machine) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		_ = l.lock.Close() // logind waits for this
		l.lock = nil
	}
}
