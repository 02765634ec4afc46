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
	// settleTimeout limits the delay of a request by interrupted pulls, which are settled first.
	settleTimeout = 10 * time.Second
	// settleAgain is the time between two attempts to settle pulls.
	settleAgain = time.Minute
)

// Prune removes the records of removed images: those that are not in present and were not
// touched after since, the time at which the list of present images began. present must have all
// images on the node: an image without a record counts as preloaded. Without Config.Records it
// does nothing.
func (m *Manager) Prune(ctx context.Context, present []string, since time.Time) error {
	if m.records == nil {
		return nil
	}
	// The image of an interrupted pull may be in present, and gets its record first.
	m.recoverPulls(ctx)
	if err := m.records.prune(present, since); err != nil {
		return fmt.Errorf("images: prune: %w", err)
	}
	return nil
}

// mayUse reports whether a pod may use a present image without asking the registry. It reads
// secrets and accounts only if the records need them: not for preloaded and public images.
func (m *Manager) mayUse(ctx context.Context, r Request, name string, img *Image) bool {
	if m.records == nil {
		return true
	}
	v := m.policy.decide(img.Ref, name, m.records.look(img.Ref, name), func() asker {
		// An invalid secret gives no access; a pull would report it.
		creds, _, _ := lookup(name, r.Secrets)
		a := asker{accounts: m.accounts(ctx, r, name)}
		for _, c := range creds {
			a.secrets = append(a.secrets, *c.secret)
		}
		return a
	})
	m.met.checks.WithLabelValues(v.result).Inc()
	if !v.learn.none() {
		_ = m.records.note(img.Ref, repository(name), v.learn) // logged by note
	}
	return v.use
}

// accounts returns the service accounts of a pod: its own, or those that the keyrings return for
// it.
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

// usedBy returns the pullCredentials after a pull with the n-th credential, counted from 1; 0
// means without. All waiters had the same credential, but maybe from different secrets. A pull
// with the node's own credentials, or without any, makes the image available to every pod of the
// node.
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

// onRecord makes a pull with its records, in this order: intent, pull, record, removal of the
// intent. So after a crash a pulled image always has an intent or a record.
func (m *Manager) onRecord(ctx context.Context, f *flight, pull func() (pulled, error)) (pulled, error) {
	if m.records == nil {
		return pull()
	}
	// A present image may be preloaded, and a failed pull must not make it private.
	name, before := f.spec.GetImage(), ""
	if img, err := m.status(ctx, f.spec); err == nil && img != nil {
		before = img.Ref
	}
	// After ctx has ended, the status is unknown.
	if err := ctx.Err(); err != nil {
		return pulled{}, err
	}
	if err := m.records.begin(name, before); err != nil {
		// Records have no effect, so an error must not prevent the pull.
		if m.policy.verify == NeverVerify {
			m.cfg.Log.Warn("failed to record unfinished pull; pulling without a record", zap.String("image", name), zap.Error(err))
			return pull()
		}
		return pulled{}, err
	}
	got, err := pull()
	sure := false
	if err == nil && got.ref != "" {
		// All waiters are recorded; after landed no caller can join.
		sure = m.records.note(got.ref, repository(name), usedBy(got.used, m.landed(f))) == nil
	}
	if m.records.end(name, sure) {
		// The image may be present nevertheless, for example if the pull was cancelled at the
		// last moment. ctx may have ended.
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		m.settle(sctx, f.spec)
	}
	return got, err
}

// settle settles a pull whose result is unknown.
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

// recoverPulls settles pulls that a crash or an unreachable runtime interrupted. One caller does
// it while others wait, for about settleTimeout at most or until ctx ends. Failures are tried
// again after settleAgain.
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
	// Another caller has just tried.
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
