package nodeagent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/server"
)

// shortestWatchdog is the lower limit of WatchdogSec, as in the kubelet: a notification of systemd
// may take as long.
const shortestWatchdog = time.Second

// watchdog notifies systemd that the agent is alive, twice in the interval of its
// unit (WatchdogSec), as sd_watchdog_enabled(3) recommends. Without a notification
// systemd restarts the agent.
type watchdog struct {
	interval time.Duration
	checks   []server.Check
	// tell sends a message to systemd. It is sdNotify, or a function of a test. sent is false if
	// there is no socket.
	tell func(state string) (sent bool, err error)
	log  *zap.Logger
}

// newWatchdog returns a watchdog for the interval that systemd has set. It returns nil if systemd
// has set none.
//
// The check of the device plugin registration is left out: package devicemgr
// retries it, and an agent that is restarted for a permanent failure is finally not
// started any more (StartLimitBurst).
func newWatchdog(checks []server.Check, log *zap.Logger) (*watchdog, error) {
	if os.Getenv("WATCHDOG_USEC") == "0" {
		return nil, nil //nolint:nilnil // systemd asks for nothing
	}
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("systemd's watchdog: WATCHDOG_USEC=%q, WATCHDOG_PID=%q: %w", os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"), err)
	}
	if interval == 0 {
		return nil, nil //nolint:nilnil // systemd's watchdog is off, or for another process
	}
	if interval <= shortestWatchdog {
		return nil, fmt.Errorf("systemd's watchdog: WatchdogSec is %v; want more than %v", interval, shortestWatchdog)
	}
	w := &watchdog{interval: interval, log: log, tell: func(state string) (bool, error) { return sdNotify(state, notifyTimeout) }}
	for _, c := range checks {
		if c.Name != devicePluginCheck {
			w.checks = append(w.checks, c)
		}
	}
	return w, nil
}

// run notifies systemd until ctx ends. It returns nil.
func (w *watchdog) run(ctx context.Context) error {
	tick := time.NewTicker(w.interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.round(ctx)
		}
	}
}

// round notifies systemd, with two tries, if all checks pass. If a check fails, it does not
// notify systemd, which acts when it gets no notification for the whole interval.
func (w *watchdog) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.interval/2)
	defer cancel()
	for _, c := range w.checks {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", nil)
		if err == nil {
			err = c.Check(r)
		}
		if err != nil {
			w.log.Error("withheld systemd watchdog notification: health check failed", zap.String("check", c.Name), zap.Error(err))
			return
		}
	}
	// The pause before the second try has jitter, as the kubelet's.
	sent, err := w.tell(daemon.SdNotifyWatchdog)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(time.Second) * (1 + 0.1*rand.Float64()))):
			sent, err = w.tell(daemon.SdNotifyWatchdog)
		}
	}
	switch {
	case err != nil:
		w.log.Error("failed to notify systemd watchdog", zap.Error(err))
	case !sent:
		w.log.Warn("failed to notify systemd watchdog: NOTIFY_SOCKET is not set")
	}
}
