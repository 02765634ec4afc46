package nodeagent

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Systemd notifies systemd, if it started the process, that the node is up, that it
// is alive (WatchdogSec), and that it ends.
func Systemd(n *Node) (name string, run func(context.Context) error, err error) {
	dog, err := newWatchdog(n.checks(), n.builder.Log)
	if err != nil {
		return "", nil, err
	}
	return "systemd", func(ctx context.Context) error {
		var g errgroup.Group
		if dog != nil {
			g.Go(func() error { return dog.run(ctx) })
		}
		g.Go(func() error {
			n.announce(ctx)
			return nil
		})
		return g.Wait()
	}, nil
}

// announce notifies systemd when the node is up and when it ends. A unit of Type=notify counts as
// started only then, and units ordered after it wait for that.
func (n *Node) announce(ctx context.Context) {
	select {
	case <-n.Up():
	case <-ctx.Done():
		return
	}
	notify(n.builder.Log, daemon.SdNotifyReady)
	<-ctx.Done()
	notify(n.builder.Log, daemon.SdNotifyStopping)
}

// notifyTimeout limits a message to systemd, which may be busy or frozen.
const notifyTimeout = time.Second

// notify notifies systemd, if it listens. A failure is logged and has no other
// effect.
func notify(log *zap.Logger, state string) {
	if _, err := sdNotify(state, notifyTimeout); err != nil {
		log.Warn("failed to notify systemd", zap.String("state", state), zap.Error(err))
	}
}

// sdNotify sends a message to the NOTIFY_SOCKET (sd_notify(3)). It returns false if there is no
// such socket. Unlike go-systemd, it waits at most for timeout if the socket is full. A name that
// begins with @ is an abstract socket, which package net supports.
func sdNotify(state string, timeout time.Duration) (sent bool, err error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return false, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return false, err
	}
	_, err = conn.Write([]byte(state))
	return err == nil, err
}
