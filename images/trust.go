package images

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// settleTimeout bounds how long a request may be held up by pulls of an
	// earlier run, whose end has to be found out first.
	settleTimeout = 10 * time.Second
	// settleAgain is the time between two tries at those that could not be.
	settleAgain = time.Minute
)

// Prune drops the records of images that are gone: those whose references are
// not in present and that were not touched since, which is when the list of
// present images was begun. Present must name every image that is there, not
// only those that were looked at: one whose record is gone counts as preloaded.
// It does nothing without Config.Records.
func (m *Manager) Prune(ctx context.Context, present []string, since time.Time) error {
	if m.records == nil {
		return nil
	}
	// An open pull may be of an image that is in present, and gets its record
	// first.
	m.recoverPulls(ctx)
	if err := m.records.prune(present, since); err != nil {
		return fmt.Errorf("images: prune: %w", err)
	}
	return nil
}

// mayUse reports whether a pod may use an image that is here without asking the
// registry. The look at secrets and accounts is put off until the records make
// it necessary: for preloaded and public images it is not.
func (m *Manager) mayUse(ctx context.Context, r Request, name string, img *Image) bool {
	if m.records == nil {
		return true
	}
	v := m.policy.decide(img.Ref, name, m.records.look(img.Ref, name), func() asker {
		// A secret that cannot be read opens nothing; if there has to be a
		// pull, that will complain.
		creds, _, _ := lookup(name, r.Secrets)
		a := asker{accounts: m.accounts(ctx, r, name)}
		for _, c := range creds {
			a.secrets = append(a.secrets, *c.secret)
		}
		return a
	})
	m.met.checks.WithLabelValues(v.result).Inc()
	if !v.learn.none() {
		_ = m.records.note(img.Ref, repository(name), v.learn) // it was logged, and is for next time
	}
	return v.use
}

// accounts are the service accounts in whose name a pod may use what was pulled:
// its own, or those that the keyrings know it by.
func (m *Manager) accounts(ctx context.Context, r Request, name string) (out []ServiceAccount) {
	if r.ServiceAccount != nil {
		out = append(out, *r.ServiceAccount)
	}
	if r.Pod == nobody {
		return out
	}
	for _, k := range m.cfg.Keyrings {
		if p, ok := k.(PodKeyring); ok {
			out = append(out, p.PodAccounts(ctx, name, r.Pod)...)
		}
	}
	return out
}

// usedBy returns what a pull with the n-th credential, counted from 1, reports
// of those who waited for it. They all brought the same credential, but each
// from a place of their own. With n 0 it took none. The node's own credentials,
// and none, open the image to every pod of the node.
func usedBy(n int, all [][]credential) (out pullCredentials) {
	if n == 0 {
		return pullCredentials{NodePodsAccessible: true}
	}
	for _, creds := range all {
		switch c := &creds[n-1]; {
		case c.secret != nil:
			if !slices.Contains(out.KubernetesSecrets, *c.secret) {
				out.KubernetesSecrets = append(out.KubernetesSecrets, *c.secret)
			}
		case c.account != nil:
			if !slices.Contains(out.KubernetesServiceAccounts, *c.account) {
				out.KubernetesServiceAccounts = append(out.KubernetesServiceAccounts, *c.account)
			}
		default:
			return pullCredentials{NodePodsAccessible: true}
		}
	}
	return out
}

// onRecord makes a pull with its trail of records around it. The order is the
// point: intent, pull, record, end of the intent. A crash in any place leaves
// an intent, or a record, and never an image that nobody knows to have been
// pulled.
func (m *Manager) onRecord(ctx context.Context, f *flight, pull func() (pulled, error)) (pulled, error) {
	if m.records == nil {
		return pull()
	}
	// An image that is here already may be a preloaded one, which a failed pull
	// must not make private.
	name, before := f.spec.GetImage(), ""
	if img, err := m.status(ctx, f.spec); err == nil && img != nil {
		before = img.Ref
	}
	// A look that ctx cut short says nothing of what is here.
	if err := ctx.Err(); err != nil {
		return pulled{}, err
	}
	if err := m.records.begin(name, before); err != nil {
		// Nothing is decided by the records, and they must not cost a pull.
		if m.policy.verify == NeverVerify {
			m.cfg.Log.Warn("a pull goes without a record", zap.String("image", name), zap.Error(err))
			return pull()
		}
		return pulled{}, err
	}
	got, err := pull()
	sure := false
	if err == nil && got.ref != "" {
		// Everybody who waited is recorded; landed sees to it that nobody joins after
		// this.
		sure = m.records.note(got.ref, repository(name), usedBy(got.used, m.landed(f))) == nil
	}
	if m.records.end(name, sure) {
		// It may have brought the image nevertheless, as a pull that was
		// cancelled at the last moment does. Most such pulls were cancelled, with
		// ctx.
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		m.settle(sctx, f.spec)
	}
	return got, err
}

// settle looks at what came of a pull whose end is not known.
func (m *Manager) settle(ctx context.Context, spec *runtimeapi.ImageSpec) {
	img, err := m.status(ctx, spec)
	switch {
	case err != nil: // later
	case img == nil:
		m.records.settle(spec.GetImage(), "")
	default:
		m.records.settle(spec.GetImage(), img.Ref)
	}
}

// recoverPulls settles the pulls that an earlier run, or an unreachable
// runtime, has left open. One caller does it and the others wait; what does
// not succeed is tried again later, and holds nobody up until then. It blocks
// for about settleTimeout at most, or until ctx ends.
func (m *Manager) recoverPulls(ctx context.Context) {
	if len(m.records.unsettled()) == 0 {
		return
	}
	select {
	case m.recovering <- struct{}{}:
		defer func() { <-m.recovering }()
	case <-ctx.Done():
		return
	}
	// Guarded by recovering: whoever was here before has just tried.
	if time.Now().Before(m.recoverAt) {
		return
	}
	sctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, image := range m.records.unsettled() {
		m.settle(sctx, &runtimeapi.ImageSpec{Image: image})
	}
	if ctx.Err() == nil { // else the next caller goes on
		m.recoverAt = time.Now().Add(settleAgain)
	}
}
