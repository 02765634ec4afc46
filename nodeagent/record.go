package nodeagent

import (
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/record"
)

// Record returns a Maker of the part that records the agent's facts and decisions: see package
// record. Its files are in the directory "record" below the root directory, unless c.Dir is set.
// Record sets the node's name, the boot ID and the log in c. The part is not in [Standard].
func Record(c record.Config) Maker {
	return func(b *Builder) (part.Part, error) {
		if c.Dir == "" {
			c.Dir = b.Path("record")
		}
		boot, err := b.boot()
		if err != nil {
			b.Log.Warn("boot of the machine is not known; reboots are not recorded", zap.Error(err))
		}
		c.Node, c.Boot, c.Log = b.Node.Name, boot, b.Log.Named("record")
		return record.New(c)
	}
}
