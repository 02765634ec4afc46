package podworker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker/serial"
)

func TestEffectiveGrace(t *testing.T) {
	sec := func(n int64) *int64 { return &n }
	pod := func(spec, deletion *int64) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: deletion}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: spec}}
	}
	for name, tc := range map[string]struct {
		current   int64
		pod       *v1.Pod
		override  *int64
		want      int64
		shortened bool
	}{
		"spec":                             {0, pod(sec(30), nil), nil, 30, false},
		"deletion before spec":             {0, pod(sec(30), sec(5)), nil, 5, false},
		"longer deletion before spec":      {0, pod(sec(5), sec(30)), nil, 30, false},
		"override below deletion":          {0, pod(sec(30), sec(5)), sec(2), 2, false},
		"override above deletion":          {0, pod(sec(30), sec(5)), sec(20), 5, false},
		"deletion of 0":                    {0, pod(sec(30), sec(0)), nil, 1, false},
		"deletion of 0 and an override":    {0, pod(sec(30), sec(0)), sec(5), 1, false},
		"override of 0":                    {0, pod(sec(30), nil), sec(0), 1, false},
		"negative override":                {0, pod(sec(30), nil), sec(-7), 1, false},
		"nothing at all":                   {0, pod(nil, nil), nil, 30, false},
		"no pod":                           {0, nil, nil, 0, false},
		"no pod, override":                 {0, nil, sec(4), 4, false},
		"current and nothing new":          {30, pod(sec(10), nil), nil, 30, false},
		"current and a longer override":    {30, pod(sec(10), nil), sec(60), 30, false},
		"current and the same override":    {30, pod(sec(10), nil), sec(30), 30, false},
		"current and a shorter override":   {30, pod(sec(10), nil), sec(3), 3, true},
		"current and a shorter deletion":   {30, pod(sec(10), sec(0)), nil, 1, true},
		"the least, and an override of 0":  {1, pod(sec(30), nil), sec(0), 1, false},
		"the least, and one that is below": {1, pod(sec(30), nil), sec(-1), 1, false},
	} {
		if got, shortened := effectiveGrace(tc.current, tc.pod, podlife.Cause{Grace: tc.override}); got != tc.want || shortened != tc.shortened {
			t.Errorf("%s: %d, shortened=%v; want %d, %v", name, got, shortened, tc.want, tc.shortened)
		}
	}
}

type askedRetry time.Time

func (e askedRetry) Error() string      { return "later" }
func (e askedRetry) RetryAt() time.Time { return time.Time(e) }

func TestRetry(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) error { return askedRetry(now.Add(d)) }
	m := &Manager{jitter: jitter, cfg: Config{Resync: time.Minute}}
	plain := errors.New("boom")
	for name, tc := range map[string]struct {
		failures int
		err      error
		lo, hi   time.Duration
	}{
		"first":                          {1, plain, time.Second, 1500 * time.Millisecond},
		"second":                         {2, plain, 2 * time.Second, 3 * time.Second},
		"at the limit":                   {7, plain, 60 * time.Second, 90 * time.Second},
		"long beyond the limit":          {1 << 20, plain, 60 * time.Second, 90 * time.Second},
		"asked":                          {1, in(5 * time.Second), 5 * time.Second, 5 * time.Second},
		"asked among others":             {4, errors.Join(plain, in(7*time.Second)), 7 * time.Second, 7 * time.Second},
		"the earliest counts":            {1, errors.Join(in(9*time.Second), in(7*time.Second)), 7 * time.Second, 7 * time.Second},
		"asked for a time that is past":  {1, in(-time.Second), 0, 0},
		"asked for the past again":       {2, in(-time.Second), time.Second, time.Second},
		"asked for long after a resync":  {1, in(time.Hour), time.Minute, time.Minute},
		"asked for no time":              {1, askedRetry{}, time.Second, 1500 * time.Millisecond},
		"network":                        {5, ErrNetworkNotReady, time.Second, 1500 * time.Millisecond},
		"network beside one that asks":   {1, errors.Join(in(7*time.Second), ErrNetworkNotReady), time.Second, 1500 * time.Millisecond},
		"network deep in the error tree": {1, errors.Join(plain, &serial.PanicError{}, errors.Join(ErrNetworkNotReady)), time.Second, 1500 * time.Millisecond},
	} {
		for range 20 {
			if d, _ := m.retry(tc.failures, tc.err, now); d < tc.lo || d > tc.hi {
				t.Errorf("%s: %v, want %v to %v", name, d, tc.lo, tc.hi)
			}
		}
	}
}

func TestOneWaitIsOneWarning(t *testing.T) {
	at := time.Now()
	until := func(d time.Duration) error { return askedRetry(at.Add(d)) }
	plain := errors.New("boom")
	for name, tc := range map[string]struct {
		errs []error
		want []bool // warnings
	}{
		"crash loop, looked at thrice":    {[]error{until(10), until(10), until(10)}, []bool{true, false, false}},
		"the next round":                  {[]error{until(10), until(10), until(20), until(20)}, []bool{true, false, true, false}},
		"another failure in between":      {[]error{until(10), plain, until(10)}, []bool{true, true, false}},
		"failures without a time":         {[]error{plain, plain, plain, plain, plain}, []bool{true, true, false, true, false}},
		"waits do not count for thinning": {[]error{plain, until(10), until(10), until(10), plain, plain}, []bool{true, true, false, false, false, true}},
	} {
		core, logs := observer.New(zapcore.DebugLevel)
		m := &Manager{jitter: jitter, cfg: Config{Resync: time.Minute, Log: zap.New(core)}}
		p := &pod{}
		for i, err := range tc.errs {
			m.failed(p, &serial.Result{Err: err, At: at}, i+1)
		}
		var got []bool
		for _, l := range logs.All() {
			got = append(got, l.Level == zapcore.WarnLevel)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: warnings %v, want %v", name, got, tc.want)
		}
		// A success in between ends the row.
		m.failed(p, &serial.Result{Err: until(time.Hour), At: at}, 1)
		if last := logs.All()[logs.Len()-1]; last.Level != zapcore.WarnLevel {
			t.Errorf("%s: the first failure after a success is no warning", name)
		}
	}
}
