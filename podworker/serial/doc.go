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
// A key is in a [Stage], whose meaning is the handler's: booting, running, stopping. The
// handler returns what comes next: [Rest], [Again] after a while, [Enter] another stage at
// once, or [Done], which removes the key. A failed call does not change the stage.
//
// # Limits
//
// Config.Limit bounds the calls in flight; keys wait in order of arrival. Config.Limited
// exempts calls that must not wait, so that a shutdown does not queue behind a hundred
// starts; it is asked again for each update of a waiting key. A call that takes longer than
// Config.Patience no longer counts against the limit; it is not cancelled.
//
// # Ownership
//
// [New] has no side effects. [Manager.Run] blocks and owns every goroutine and timer. When its
// context ends it cancels the calls in flight and returns after the last of them; their
// errors and the pending updates are dropped. A key at rest costs a record and, after
// [Again], a timer; it has a goroutine only during a call of its handler.
//
// Updates are passed by value and never copied deeply. End a key with [Done] or
// [Manager.Forget] when it is no longer needed, or its record is kept forever.
//
// # Concurrency and back-pressure
//
// All methods may be called from any goroutine, handlers included. None waits for a handler,
// so there is no back-pressure: a key has at most one pending update, and the memory of a
// Manager is bounded by its keys. To wait for an effect, put a channel into the update.
//
// To change state of your own together with that of the workers, share their lock: see
// [Manager.Lock], Config.Begin and Config.End.
//
// Tier: beta.
package serial
