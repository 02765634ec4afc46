package bundle

import (
	"errors"
	"fmt"
	"time"
)

// MaxTrials is how often the trial of a bundle begins: at first, and after each end of the agent or
// of the machine during it.
const MaxTrials = 3

// Record is the state of a node: which bundle runs, and which comes next. Its methods return the
// state after an event. They are pure: no clock, no disk. The Manager stores each new state before
// it acts on it. Bundles are named by their digests.
type Record struct {
	// Good has been healthy, and is in effect unless Next is on trial. Before was good before it.
	// Both are "" at first.
	Good   string `json:"good,omitempty"`
	Before string `json:"before,omitempty"`
	// Next is to replace Good, or nil.
	Next *Next `json:"next,omitempty"`
	// Rejected is the last bundle that did not take effect or did not stay in effect, or nil.
	Rejected *Rejection `json:"rejected,omitempty"`
	// Seen is the digest of the polled tag for which a decision was made last: it is made once.
	Seen string `json:"seen,omitempty"`
}

// Next is a bundle that is to take effect.
type Next struct {
	Digest string `json:"digest"`
	// Trials is how often its trial has begun. If it is 0, the images are being pulled, and the pods
	// of the last good bundle run.
	Trials int `json:"trials,omitempty"`
}

// Rejection says why a bundle is not in effect.
type Rejection struct {
	Digest string    `json:"digest"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"` // by the machine's clock, for people
}

// onTrial reports whether the pods of r.Next run.
func (r Record) onTrial() bool { return r.Next != nil && r.Next.Trials > 0 }

// Running returns the digest of the bundle whose pods run, or "".
func (r Record) Running() string {
	if r.onTrial() {
		return r.Next.Digest
	}
	return r.Good
}

// needs reports whether an artifact has to be kept.
func (r Record) needs(digest string) bool {
	return digest == r.Good || digest == r.Before || r.Next != nil && digest == r.Next.Digest
}

// Errors of [Manager.Apply] and [Manager.Rollback].
var (
	ErrOnTrial  = errors.New("a bundle is on trial; wait for its end, or roll it back")
	ErrNoBefore = errors.New("there is no earlier good bundle")
)

// offered is the event that a valid bundle has arrived, whose artifact is stored. It replaces one
// whose images are being pulled.
func (r Record) offered(digest string) (Record, error) {
	if r.onTrial() {
		return r, ErrOnTrial
	}
	r.Next = nil
	if digest != r.Good {
		r.Next = &Next{Digest: digest}
	}
	return r, nil
}

// pulled is the event that the images of r.Next are on the node: its trial begins.
func (r Record) pulled() Record {
	r.Next = &Next{r.Next.Digest, 1}
	return r
}

// started is the event that the agent has started. A trial that was interrupted begins again.
func (r Record) started(now time.Time) Record {
	switch {
	case !r.onTrial():
		return r
	case r.Next.Trials >= MaxTrials:
		return r.failed(fmt.Sprintf("the agent or the machine ended during each of %d trials", MaxTrials), now)
	}
	r.Next = &Next{r.Next.Digest, r.Next.Trials + 1}
	return r
}

// healthy is the event that the trial has succeeded.
func (r Record) healthy() Record {
	r.Good, r.Before, r.Next = r.Next.Digest, r.Good, nil
	if r.Rejected != nil && r.Rejected.Digest == r.Good {
		r.Rejected = nil
	}
	return r
}

// failed is the event that r.Next does not take effect.
func (r Record) failed(reason string, now time.Time) Record {
	r.Rejected = &Rejection{r.Next.Digest, reason, now}
	r.Next = nil
	return r
}

// refused is the event that a bundle was refused when it arrived.
func (r Record) refused(digest, reason string, now time.Time) Record {
	r.Rejected = &Rejection{digest, reason, now}
	return r
}

// byUser is the reason of a bundle that Manager.Rollback has ended.
const byUser = "rolled back by a user"

// rolledBack is the event that a user wants the bundle before: that before the trial, or else
// r.Before.
func (r Record) rolledBack(now time.Time) (Record, error) {
	switch {
	case r.Next != nil:
		return r.failed(byUser, now), nil
	case r.Before == "":
		return r, ErrNoBefore
	}
	r.Rejected = &Rejection{r.Good, byUser, now}
	r.Good, r.Before = r.Before, ""
	return r, nil
}

// lost is the event that an artifact cannot be read: a damaged disk. The bundle before takes its
// place, and the polled tag counts as new.
func (r Record) lost(digest string, now time.Time) Record {
	const reason = "its artifact is missing or damaged on the disk"
	if !r.needs(digest) {
		return r
	}
	if r.Next != nil && r.Next.Digest == digest {
		r.Next = nil
	}
	if r.Before == digest {
		r.Before = ""
	}
	if r.Good == digest {
		r.Good, r.Before = r.Before, ""
	}
	r.Rejected, r.Seen = &Rejection{digest, reason, now}, ""
	return r
}
