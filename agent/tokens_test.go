package agent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// keeping are tokens that outlast the agent.
type keeping struct{ known atomic.Value }

func (*keeping) Token(context.Context, string, string, authv1.TokenRequestSpec) (plugins.Token, error) {
	return plugins.Token{}, errors.New("none")
}
func (*keeping) Forget(types.UID) {}
func (k *keeping) Retain(known func(types.UID) bool) {
	k.known.Store([2]bool{known("uid-p"), known("uid-gone")})
}

func TestTokensOfPodsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, k := newNode(t), &keeping{}
		p, err := lifecycle.NewTokens(lifecycle.TokensConfig{Tokens: k})
		if err != nil {
			t.Fatal(err)
		}
		n.parts = []part.Part{p}
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := k.known.Load(); got != [2]bool{true, false} {
			t.Errorf("told %v of a pod that is there and one that is not", got)
		}
		l.stop()
	})
}
