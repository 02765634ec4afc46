// Package serial calls a handler for the updates of keys. For one key, the calls follow one after
// another and never overlap, whichever goroutines the updates come from. Keys do not wait for
// each other.
//
// It is for programs that manage many objects of one kind, each of which takes time to change:
// virtual machines, network devices, tenants, leases. Package podworker uses it for pods.
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
// Calls for one key never overlap, not even if the key is forgotten and gets a new update.
//
// Updates coalesce: Config.Merge merges updates that come while the handler runs or has to wait
// into one; without Config.Merge the last one replaces the others. An accepted update is
// delivered, unless Run ends or the key is forgotten first. A retry, [Again] and [Manager.Again]
// call the handler with the update that was delivered last.
//
// A handler that fails is called again after a delay. The delay doubles up to a limit, and begins
// anew after a success. A handler that panics has failed with a [PanicError]. An update ends the
// delay.
//
// An update that Config.Interrupts says is urgent cancels the call in flight and is delivered
// next. The cancelled call does not count as failed, and causes no delay.
//
// # Stages
//
// A key is in a [Stage]. The handler defines what the stages mean, for example booting, running
// and stopping. The handler returns what comes next: [Rest], [Again] after a while, [Enter]
// another stage at once, or [Done], which removes the key. A failed call does not change the
// stage.
//
// # Limits
//
// Config.Limit bounds the calls in flight; keys wait in order of arrival. Config.Limited exempts
// calls that must not wait, so that a shutdown does not queue behind a hundred starts. Limited is
// called again for each update of a waiting key. A call that takes longer than Config.SlotTimeout no
// longer counts against the limit; it is not cancelled.
//
// # Ownership
//
// [New] has no side effects. [Manager.Run] blocks and owns every goroutine and timer. When its
// context ends it cancels the calls in flight and returns after the last of them; their errors
// and the pending updates are dropped. A key at rest costs a record and, after [Again], a timer;
// it has a goroutine only during a call of its handler.
//
// Updates are passed by value and never copied deeply. End a key with [Done] or [Manager.Forget]
// when it is no longer needed; otherwise its record is kept for ever.
//
// # Concurrency and back-pressure
//
// All methods may be called from any goroutine, also by handlers. No method waits for a handler,
// so there is no back-pressure: a key has at most one pending update, and the memory of a Manager
// is bounded by its keys. To wait for an effect, put a channel into the update.
//
// To change your own state together with the state of the workers, share the workers' lock: see
// [Manager.Lock], Config.Begin and Config.End.
//
// Tier: beta.
package serial
