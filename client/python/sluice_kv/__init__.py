"""KV caches of long contexts from a Sluice store, for serving engines on a host with `sluice-node`.

`sluice_kv.vllm` is a connector for vLLM, `sluice_kv.transformers` works with caches of
transformers, `sluice_kv.node` is the daemon's API that both use."""

__version__ = "0.1.0"
