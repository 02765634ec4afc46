// Package schedule runs health checks on time: when the first one is due, how often, and
// how many results in a row change a verdict. It knows checks, and nothing of pods; a
// supervisor of plain processes can use it as it is:
//
//	e, err := schedule.New(schedule.Config{})
//	if err != nil {
//		return err
//	}
//	go e.Run(ctx)
//	p := e.Add(schedule.Spec{
//		Timing: schedule.Timing{Period: time.Second},
//		Check:  check.TCP{Host: "127.0.0.1", Port: 5432}.Check,
//		Done:   func(r schedule.Round) (again bool) { fmt.Println(r.Verdict); return true },
//	})
//	defer p.Stop()
//
// # Cost
//
// A waiting probe is an entry in a heap with one timer for all. There are
// goroutines only for checks under way. They have places, Config.Parallel of
// them, and Config.ParallelExpensive for those that cost the node more, such
// as commands. Checks that are due wait in order for a place. Those that took
// their whole timeout the last time get half of the places at most: servers
// that hang hold up each other, and nobody else.
//
// # Fair shares
//
// Probes with a [Spec].Group, such as those of one pod, share. Groups have
// places in turn, however many checks each of them has due. A check that runs
// for a second gives its place to the next in line and goes on. A group has as
// many checks under way as a quarter of the places, those without a place
// counted too, and half of that for checks that took a second the last time or
// do so now. So checks that hang for an hour cost other groups a second once, and
// all checks under way are at most the places and a quarter of them for each
// group.
//
// # Time
//
// Every decision uses the monotonic clock. A check that takes longer than its
// period makes the missed ones into one, which follows at once; the ones after
// keep the rhythm.
//
// # Errors
//
// A check that ends with an error is tried again, three times in all and
// within the one timeout. If there is still an error the round counts neither
// as a success nor as a failure, however often it happens: an error is about
// whoever asked (the runtime is down, the port has no such name), and a node
// whose runtime restarts must not fail all its probes. [Round].Errors reports
// how long this goes on. A panic in a check is such an error.
//
// Tier: stable.
package schedule
