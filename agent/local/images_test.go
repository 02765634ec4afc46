package local_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent/local"
)

type imager struct {
	fakeAgent
	answer local.Images
	err    error
}

func (i *imager) Images(context.Context) (local.Images, error) { return i.answer, i.err }

func TestImages(t *testing.T) {
	at := time.Unix(1700000000, 0).UTC()
	i := &imager{answer: local.Images{
		At: at, Disk: local.ImageDisk{Capacity: 10, Available: 1}, High: 85, Low: 80, Wanted: 1, Summary: "2 images",
		Images: []local.Image{{Name: "a", ID: "sha256:a", Size: 7, Verdict: "removable", Goes: true, FirstSeen: at}, {Name: "b", Verdict: "in use", Why: "p", FirstSeen: at, LastUsed: at}},
	}}
	c := serveFit(t, i)
	if got, err := c.Images(t.Context()); err != nil || !reflect.DeepEqual(*got, i.answer) {
		t.Errorf("%+v, %v, want %+v", got, err, i.answer)
	}
	i.err = errors.New("the runtime is away")
	if _, err := c.Images(t.Context()); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("a runtime that is away: %v", err)
	}
	if _, err := serveFit(t, &fakeAgent{}).Images(t.Context()); err == nil || !strings.Contains(err.Error(), "does not list") {
		t.Errorf("an agent that cannot tell: %v", err)
	}
}
