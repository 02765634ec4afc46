package main

import (
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/checkpoint"
)

// openStore opens the checkpoints of a directory. A damaged one is logged.
func openStore(dir string, log *zap.Logger) (*checkpoint.Store, error) {
	return checkpoint.Open(checkpoint.Config{
		Dir: dir,
		OnCorrupt: func(key, setAside string, err error) {
			log.Warn("damaged checkpoint set aside", zap.String("key", key), zap.String("file", setAside), zap.Error(err))
		},
	})
}
