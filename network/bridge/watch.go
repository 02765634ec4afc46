package bridge

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/wake"
)

// Pauses before an event is handled, since more events may follow.
const (
	restorePause = 50 * time.Millisecond // between two times that the table is put back
	bridgeQuiet  = 10 * time.Millisecond // for step-by-step changes of the bridge
	// A read of routes or rules reads all of them, so these pauses are longer.
	lookQuiet   = time.Second            // before routes and rules of other programs are read
	lookPause   = 3 * time.Second        // between two such reads
	failedPause = 100 * time.Millisecond // doubled with each failure
	maxPause    = 30 * time.Second
	runDeadline = 30 * time.Second // of one action of Run
)

// inbox collects changes until they are taken. It holds a set of bits, so that it
// cannot grow while Run is busy.
type inbox struct {
	mu   sync.Mutex
	all  change
	wake wake.Signal
}

// newInbox returns an empty inbox.
func newInbox() *inbox { return &inbox{wake: wake.New()} }

// put adds changes, and wakes the reader. It does not block.
func (b *inbox) put(c change) {
	if c == 0 {
		return
	}
	b.mu.Lock()
	b.all |= c
	b.mu.Unlock()
	b.wake.Set()
}

// take returns all changes since the last call.
func (b *inbox) take() change {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.all
	b.all = 0
	return c
}

// schedule decides when changes are handled. It reads no clock: the present time is an
// argument of its methods.
type schedule struct {
	due  map[change]time.Time
	last map[change]time.Time // time when the change was last handled
	fail time.Duration        // pause after the latest failed restore
}

// newSchedule returns a schedule with nothing due.
func newSchedule() *schedule {
	return &schedule{due: map[change]time.Time{}, last: map[change]time.Time{}}
}

// eachChange is the order in which due changes are handled: pods' traffic first.
var eachChange = []change{changedTable, unsure, changedBridge, changedRoutes, changedRules}

// add adds changes. A change that is already scheduled keeps its time: otherwise a
// stream of events would delay it forever.
func (s *schedule) add(all change, now time.Time) {
	for _, c := range eachChange {
		if all&c == 0 || !s.due[c].IsZero() {
			continue
		}
		// Without a pause, two programs that both restore the table would do so all the time.
		switch c {
		case changedTable, unsure:
			s.due[c] = later(now, s.last[c].Add(restorePause))
		case changedBridge:
			s.due[c] = now.Add(bridgeQuiet)
		default:
			s.due[c] = later(now.Add(lookQuiet), s.last[c].Add(lookPause))
		}
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// next returns the due changes. If there are none, it returns the time until the next change is
// due, or 0 if none is scheduled.
func (s *schedule) next(now time.Time) (c change, wait time.Duration) {
	for _, one := range eachChange {
		at := s.due[one]
		if at.IsZero() {
			continue
		}
		if !at.After(now) {
			return one, 0
		}
		if w := at.Sub(now); wait == 0 || w < wait {
			wait = w
		}
	}
	return 0, wait
}

// done records the result of handling a change. After a failure the same change is
// scheduled again, with a growing pause. A successful read of other programs' routes
// and rules does not reset the pause between failed restores.
func (s *schedule) done(c change, err error, now time.Time) {
	s.last[c] = now
	delete(s.due, c)
	if err == nil {
		if c == changedTable || c == unsure || c == changedBridge {
			s.fail = 0
		}
		return
	}
	s.fail = min(max(2*s.fail, failedPause), maxPause)
	s.due[c] = now.Add(s.fail)
}

// Run restores the table (within 100 ms) and the bridge after other programs have
// changed them, and checks for obstacles to the pods' traffic, until ctx ends. It
// only waits for events of the kernel. It must not be called concurrently, and
// returns nil.
func (p *Plugin) Run(ctx context.Context, changed func()) error {
	in := p.events
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		// Groups are bits of the socket's address; group numbers begin at 1.
		p.listen(ctx, in, unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1), lostRules, watched.ofRules)
	})
	all.Go(func() {
		const settings = 1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)
		const groups = settings | unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
		p.listen(ctx, in, unix.NETLINK_ROUTE, groups, lostRoutes, watched.ofRoutes)
	})
	s := newSchedule()
	// The timer is reset in each round.
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c, wait := s.next(time.Now())
		if c != 0 {
			err := p.lookInto(ctx, c, changed)
			s.done(c, err, time.Now())
			if c == unsure {
				p.mu.Lock()
				p.looked = true
				p.mu.Unlock()
			}
			// Together with the changes that arrived meanwhile.
			s.add(in.take(), time.Now())
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		timer.Stop()
		var alarm <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			alarm = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		// A wake-up that is left from an earlier round, without changes, has no effect.
		case <-in.wake:
			s.add(in.take(), time.Now())
		case <-alarm:
		}
	}
}

// lookInto handles the change c. If the result of Status is then another one, it calls changed.
// After an error the change is scheduled again.
func (p *Plugin) lookInto(ctx context.Context, c change, changed func()) error {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	switch c {
	case changedRoutes:
		err := p.lookForConflicts()
		p.logFailure(ctx, "failed to look for overlaps", err)
		return err
	case changedRules:
		err := p.lookForDropping()
		p.logFailure(ctx, "failed to look at chains of others", err)
		return err
	}
	err := p.restore(ctx, c)
	p.logFailure(ctx, "failed to restore the bridge network", err)
	// Before Recovered has run, Status has its own error.
	if ctx.Err() == nil && p.isRecovered() && p.setBroken(err) {
		changed()
	}
	return err
}

// isRecovered reports whether Recovered has adopted the attachments.
func (p *Plugin) isRecovered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recovered
}

// isReady reports whether the bridge was created.
func (p *Plugin) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bridgeIndex != 0
}

// logFailure logs an error, unless ctx has ended.
func (p *Plugin) logFailure(ctx context.Context, message string, err error) {
	if err != nil && ctx.Err() == nil {
		p.log.Error(message, zap.Error(err))
	}
}

// restore restores the table or the bridge. Before the first pod there is only one
// thing to do: to repeat the work of a failed Recovered. It waits for the gate, which
// pods that are being attached may hold.
func (p *Plugin) restore(ctx context.Context, c change) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !p.ready {
		if p.isRecovered() && p.Status() != nil {
			return p.prepare(ctx)
		}
		return nil
	}
	if c == changedBridge {
		return p.ensureBridge()
	}
	l, want := p.layout(), p.contents()
	// Events were lost: most likely nothing has happened.
	if c == unsure {
		if ok, err := p.table.holds(l, want); ok && err == nil {
			return nil
		}
	}
	if err := p.table.replace(ctx, l, want); err != nil {
		return err
	}
	p.log.Warn("restored table after a change by another program", zap.String("table", p.cfg.Table))
	return nil
}

// listen converts the events of a netlink family to changes. If events may have been lost, it
// adds the change lost. After an error it opens a new socket. It returns when ctx ends.
func (p *Plugin) listen(ctx context.Context, in *inbox, family int, groups uint32, lost change, read func(watched, netlink.Message) change) {
	pause := failedPause
	for ctx.Err() == nil {
		// The socket is in the node's namespace, whatever the thread's namespace is.
		conn, err := netlink.Dial(family, &netlink.Config{Groups: groups, NetNS: int(p.ns.Fd())})
		if err == nil {
			// Without the privilege the buffer keeps its size, and more events are
			// lost.
			_ = conn.SetReadBuffer(nftBuffer)
			// A deadline in the past ends Receive.
			stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			// Added after the socket has joined its groups: a check finds earlier changes, and
			// later ones cause events.
			in.put(lost)
			began := time.Now()
			err = p.receive(ctx, conn, in, lost, read)
			if time.Since(began) > maxPause {
				pause = failedPause // it worked for a while
			}
			stop()
			_ = conn.Close()
		}
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("failed to read events of the kernel", zap.Int("family", family), zap.Error(err))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// receive reads events until an error. The events of one transaction are combined.
func (p *Plugin) receive(ctx context.Context, conn *netlink.Conn, in *inbox, lost change, read func(watched, netlink.Message) change) error {
	var pending change
	for {
		all, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		// The kernel has dropped events; the socket continues to work (netlink(7)).
		case errors.Is(err, unix.ENOBUFS):
			in.put(lost)
			continue
		case err != nil:
			return err
		}
		// Read again for each batch, since pods come and go, and the bridge's index may change.
		w := p.watched()
		for _, m := range all {
			pending |= read(w, m)
			if pending&complete != 0 {
				in.put(pending &^ complete)
				pending = 0
			}
		}
	}
}

// watched returns the values with which events are compared.
func (p *Plugin) watched() watched {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := watched{table: p.cfg.Table, bridge: p.name, index: p.bridgeIndex, own: p.isOwn, veth: p.isServing}
	for _, subnet := range []netip.Prefix{p.subnet, p.subnet6} {
		if subnet.IsValid() {
			w.subnets = append(w.subnets, subnet)
		}
	}
	return w
}

// isServing reports whether an interface belongs to a pod in Plugin.pods. The form of
// the name is checked first, without the lock: most events are about other interfaces.
func (p *Plugin) isServing(name string) bool {
	if !isVethName(p.cfg.VethPrefix, name) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.pods {
		if one.Veth == name {
			return one.serving
		}
	}
	return false
}
