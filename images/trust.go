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
	// settleTimeout limits how long a request waits until interrupted pulls are settled.
	settleTimeout = 10 * time.Second
	// settleAgain is the time between two attempts to settle pulls.
	settleAgain = time.Minute
)

// Prune removes the records of removed images. These are the images that are not in present and
// were not recorded or confirmed after since, the time at which the list of present images began.
// present must have all images on the node: an image without a record counts as preloaded.
// Without Config.Records, Prune does nothing.
func (m *Manager) Prune(ctx context.Context, present []string, since time.Time) error {
	if m.records == nil {
		return nil
	}
	// An image of an interrupted pull needs its record before Prune compares records with
	// present.
	m.recoverPulls(ctx)
	if err := m.records.prune(present, since); err != nil {
		return fmt.Errorf("images: remove old records of pulled images: %w", err)
	}
	return nil
}

// mayUse reports whether a pod may use a present image without asking the registry. It reads
// secrets and accounts only if the decision depends on them. For preloaded and public images it
// does not.
func (m *Manager) mayUse(ctx context.Context, r Request, name string, img *Image) bool {
	if m.records == nil {
		return true
	}
	v := m.policy.decide(img.Ref, name, m.records.look(img.Ref, name), func() asker {
		// An invalid secret gives no access. A pull would report the error.
		creds, _, _ := lookup(name, r.Secrets)
		a := asker{accounts: m.accounts(ctx, r, name)}
		for _, c := range creds {
			a.secrets = append(a.secrets, *c.secret)
		}
		return a
	})
	m.met.checks.WithLabelValues(v.result).Inc()
	if !v.learn.none() {
		_ = m.records.note(img.Ref, repository(name), v.learn) // note has logged the error
	}
	return v.use
}

// accounts returns the service accounts of a pod: Request.ServiceAccount, and those that the
// keyrings return.
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

// usedBy returns the credentials to record after a pull with the n-th credential, counted from 1.
// If n is 0, the pull used none. All waiters had this credential, but possibly from different
// Secrets. If the credential belongs to the node, or there was none, every pod of the node may
// use the image.
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

// onRecord runs pull with its records: it writes the intent, pulls, writes the record and removes
// the intent. So a pulled image has an intent or a record even after a crash.
func (m *Manager) onRecord(ctx context.Context, f *flight, pull func() (pulled, error)) (pulled, error) {
	if m.records == nil {
		return pull()
	}
	// The present image may be preloaded. If the pull fails, it must not become private.
	name, before := f.spec.GetImage(), ""
	if img, err := m.status(ctx, f.spec); err == nil && img != nil {
		before = img.Ref
	}
	// If ctx has ended, the status above is not reliable.
	if err := ctx.Err(); err != nil {
		return pulled{}, err
	}
	if err := m.records.begin(name, before); err != nil {
		// With NeverVerify, records have no effect, so an error must not prevent the pull.
		if m.policy.verify == NeverVerify {
			m.cfg.Log.Warn("failed to record unfinished pull; pulling without a record", zap.String("image", name), zap.Error(err))
			return pull()
		}
		return pulled{}, err
	}
	got, err := pull()
	sure := false
	if err == nil && got.ref != "" {
		// Records the credentials of all waiters. No caller can join after landed.
		sure = m.records.note(got.ref, repository(name), usedBy(got.used, m.landed(f))) == nil
	}
	if m.records.end(name, sure) {
		// The pull may have succeeded even so, for example if it was cancelled at the last
		// moment. A new context is needed, since ctx may have ended.
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		m.settle(sctx, f.spec)
	}
	return got, err
}

// settle finds out the result of an interrupted pull, and settles its intent; see records.settle.
func (m *Manager) settle(ctx context.Context, spec *runtimeapi.ImageSpec) {
	img, err := m.status(ctx, spec)
	switch {
	case err != nil: // a later request tries again
	case img == nil:
		m.records.settle(spec.GetImage(), "")
	default:
		m.records.settle(spec.GetImage(), img.Ref)
	}
}

// recoverPulls settles the intents of pulls that a crash or an unreachable runtime interrupted.
// One caller does this while others wait, until ctx ends or for about settleTimeout. Failures are
// tried again after settleAgain.
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
	// Another caller has tried recently.
	if time.Now().Before(m.recoverAt) {
		return
	}
	sctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, image := range m.records.unsettled() {
		m.settle(sctx, &runtimeapi.ImageSpec{Image: image})
	}
	if ctx.Err() == nil { // otherwise the next caller continues
		m.recoverAt = time.Now().Add(settleAgain)
	}
}
