package logind

import (
	"context"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names on the bus, from org.freedesktop.login1(5) and org.freedesktop.systemd1(5).
const (
	logindService = "org.freedesktop.login1"
	logindPath    = "/org/freedesktop/login1"
	logindManager = "org.freedesktop.login1.Manager"

	systemdService = "org.freedesktop.systemd1"
	systemdPath    = "/org/freedesktop/systemd1"
	killUnit       = "org.freedesktop.systemd1.Manager.KillUnit"
	logindUnit     = "systemd-logind.service"
)

// bus is a connection on which every call has a deadline.
type bus struct {
	conn    *dbus.Conn
	cancel  context.CancelFunc
	timeout time.Duration
}

func (l *Machine) connect(ctx context.Context) (*bus, error) {
	// The connection closes with its ctx. It is also cancelled if there is no
	// answer in time: neither dialing nor the greeting has a deadline.
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(callTimeout, cancel)
	defer late.Stop()
	opts := []dbus.ConnOption{dbus.WithContext(ctx), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler())}
	var conn *dbus.Conn
	var err error
	if l.cfg.Address == "" {
		conn, err = dbus.ConnectSystemBus(opts...)
	} else {
		conn, err = dbus.Connect(l.cfg.Address, opts...)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &bus{conn: conn, cancel: cancel, timeout: callTimeout}, nil
}

func (b *bus) close() {
	b.cancel()
	_ = b.conn.Close()
}

func (b *bus) call(ctx context.Context, service, path, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.conn.Object(service, dbus.ObjectPath(path)).CallWithContext(ctx, method, 0, args...)
}

// property reads a property of logind's manager object into the value that into points to.
func (b *bus) property(ctx context.Context, name string, into any) error {
	var v dbus.Variant
	if err := b.call(ctx, logindService, logindPath, "org.freedesktop.DBus.Properties.Get", logindManager, name).Store(&v); err != nil {
		return err
	}
	return v.Store(into)
}

// maxDelay returns the longest time for which logind lets locks delay a shutdown.
func (b *bus) maxDelay(ctx context.Context) (time.Duration, error) {
	var usec uint64
	err := b.property(ctx, "InhibitDelayMaxUSec", &usec)
	return time.Duration(min(usec, uint64(1<<63-1)/1000)) * time.Microsecond, err
}

// preparing reports whether the machine is going down.
func (b *bus) preparing(ctx context.Context) (down bool, err error) {
	err = b.property(ctx, "PreparingForShutdown", &down)
	return down, err
}

// inhibit takes a delay lock. It has no timeout of its own, since a late answer would leave an
// unknown lock: the caller closes the connection instead, which releases the lock.
func (b *bus) inhibit(ctx context.Context, name string) (fd dbus.UnixFD, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	call := b.conn.Object(logindService, logindPath).Go(logindManager+".Inhibit", 0, nil, "shutdown", name, "pods need time to end", "delay")
	select {
	case <-call.Done:
		err = call.Store(&fd)
		return fd, err
	case <-ctx.Done():
	}
	b.close()
	<-call.Done
	if call.Store(&fd) == nil {
		_ = syscall.Close(int(fd))
	}
	return 0, ctx.Err()
}

// reload makes logind read its configuration again.
func (b *bus) reload(ctx context.Context) error {
	return b.call(ctx, systemdService, systemdPath, killUnit, logindUnit, "all", int32(syscall.SIGHUP)).Err
}

func (b *bus) subscribe(ctx context.Context) (<-chan *dbus.Signal, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	ch := make(chan *dbus.Signal, 16)
	b.conn.Signal(ch)
	return ch, b.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(logindService), dbus.WithMatchInterface(logindManager),
		dbus.WithMatchMember("PrepareForShutdown"), dbus.WithMatchObjectPath(logindPath))
}
