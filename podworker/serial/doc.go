// Package serial calls one handler at a time for each key: however many updates come for
// a key, and from wherever, its handler is called for one after another, and never twice
// at a time. Keys do not wait for each other.
//
// It is for programs that look after many things of one kind, each of which
// takes time to change: virtual machines, network devices, tenants, leases.
// podworker looks after pods with it.
//
//	m, err := serial.New(serial.Config[string, Spec]{
//		Handle: func(ctx context.Context, c *serial.Call[string, Spec]) (serial.Next, error) {
//			if err := converge(ctx, c.Key, c.Update); err != nil {
//				return serial.Rest(), err // tried again after a back-off
//			}
//			return serial.Again(time.Minute, "resync"), nil
//		},
//	})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	m.Update("web-1", spec)
//
// # Promises
//
// Calls for one key never overlap, not even when the key is forgotten and
// begins anew.
//
// Updates coalesce: those that come while the handler is busy, or waits, are
// merged into one by Config.Merge; without it the last one counts. An update
// that was accepted is delivered, unless Run ends or the key is forgotten
// before. Once delivered it stays the key's last one, with which the handler
// is called again for a retry, after [Again], and on [Manager.Again].
//
// A handler that fails is called again, with a delay that doubles up to a limit
// and is forgotten with the first success. A handler that panics has failed
// with a [PanicError]. An update ends the delay.
//
// An update that Config.Interrupts says is urgent cancels the call in flight
// and is delivered next. The call that made way for it has not failed: there
// is no delay and no count.
//
// # Stages
//
// A key is in a [Stage], which means to the handler what the handler likes:
// booting, running, stopping. It answers each call with what is next: [Rest],
// [Again] after a while, [Enter] another stage at once, or [Done], which ends
// the key's life. A failed call leaves the stage as it was.
//
// # Limits
//
// Config.Limit bounds how many calls are in flight; who waits is served in the
// order of asking. Config.Limited exempts calls that must not wait, so that a
// shutdown does not queue behind a hundred starts: what a key waits with is
// asked anew with each update. Config.Patience takes a call out of the count
// that lasts too long. It is not cancelled: it only does not hold up others.
//
// # Ownership
//
// [New] has no side effects. [Manager.Run] blocks, owns every goroutine and
// timer, cancels the calls in flight when its context ends, and returns when
// they have; their errors are nobody's by then. What was not delivered is
// dropped. A key at rest costs a record and, if it is to be called by itself,
// a timer; it has a goroutine only while its handler is called.
//
// Updates are handed over by value and never copied deeper. A key that will
// not be heard of again has to end with [Done] or [Manager.Forget], or its
// record stays.
//
// # Concurrency and back-pressure
//
// All methods may be called from any goroutine, handlers included. None waits
// for a handler, so there is no back-pressure: a key holds at most one update
// that was not delivered, and the memory of a Manager is bounded by its keys.
// Whoever wants to wait for an effect puts a channel into the update.
//
// An embedder whose own state has to change together with the workers' shares
// their lock: see [Manager.Lock], Config.Begin and Config.End.
//
// Tier: stable.
package serial
