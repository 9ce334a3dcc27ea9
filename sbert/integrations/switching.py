"""Switching from sentence-transformers: every public name of version 6.2, and what it is called here.

A script that runs already needs another import, and no other change as long as it uses what is here:

- Scripts that encode and compare: ``from sbert import SentenceEncoder as SentenceTransformer``.
- Scripts that also use the modules (``util``, ``losses``, ``models``, ``evaluation``, the trainer):
  ``import sbert.integrations.sentence_transformers as sentence_transformers``. It has their names over ours.

The tables have the names of this library, for new code. The second column says how near they are:

- **same**: the same name, and the same result for the arguments that both have;
- **other name**: the same under another name;
- **other form**: it is done with other arguments, or gives another type;
- **not here**: with the reason.

A test collects the names from the installed package and fails if one is missing here, or if a name of ours does not
exist.

## SentenceTransformer: constructor

| sentence-transformers | how | here, in ``sbert.SentenceEncoder`` |
|---|---|---|
| ``model_name_or_path``, ``modules``, ``device``, ``prompts``, ``default_prompt_name``, ``similarity_fn_name``, ``truncate_dim`` | same | the first two are also taken by position |
| ``revision``, ``token``, ``cache_folder``, ``local_files_only`` | same | |
| ``processor_kwargs``, ``config_kwargs`` | same | for transformers; ``tokenizer_kwargs``, their older name, is taken, too |
| ``use_auth_token`` | other name | ``token`` |
| ``model_kwargs`` | other form | takes the dtype and the implementation of attention; ``dtype=`` is shorter |
| ``trust_remote_code`` | not here | only False: code from model folders is never run |
| ``backend`` | not here | only "torch"; ``sbert export`` writes models for other runtimes |
| ``model_card_data`` | not here | only None: edit the README.md of the saved folder |

## SentenceTransformer: encode

``encode_query`` and ``encode_document`` take the same arguments.

| sentence-transformers | how | here |
|---|---|---|
| ``inputs`` | other name | ``sentences``, by position; ``inputs=`` is understood, too |
| ``prompt_name``, ``prompt``, ``batch_size``, ``show_progress_bar`` | same | both prompts at once are an error; without ``batch_size``, batches are as large as ``batch_tokens`` allows |
| ``convert_to_numpy``, ``convert_to_tensor``, ``output_value``, ``device``, ``normalize_embeddings``, ``truncate_dim`` | same | |
| ``precision`` | other form | "float32", "binary" and "ubinary" are the same; "int8" needs ``ranges=sbert.search.calibrate(vectors)``, since ranges from the texts of the call would give each call another scale; there is no "uint8" |
| ``pool``, ``chunk_size`` | same | processes of ``start_multi_process_pool()`` |

## SentenceTransformer: methods and attributes

| sentence-transformers | how | here |
|---|---|---|
| ``encode``, ``encode_query``, ``encode_document`` | same | |
| ``similarity``, ``similarity_pairwise`` | other form | NumPy arrays for NumPy arrays, tensors for tensors |
| ``similarity_fn_name``, ``prompts``, ``default_prompt_name``, ``max_seq_length``, ``truncate_dim``, ``device``, ``dtype``, ``tokenizer`` | same | |
| ``get_embedding_dimension``, ``get_sentence_embedding_dimension``, ``get_max_seq_length`` | same | |
| ``save``, ``save_pretrained``, ``push_to_hub``, ``save_to_hub`` | same | |
| ``load`` | other name | ``sbert.SentenceEncoder(path)`` |
| ``truncate_embeddings``, ``truncate_sentence_embeddings``, ``set_pooling_include_prompt``, ``evaluate`` | same | |
| ``start_multi_process_pool``, ``stop_multi_process_pool``, ``encode_multi_process`` | same | |
| ``append``, ``extend``, ``insert``, ``pop`` | same | ``model[0]``, ``_first_module()`` and ``_last_module()``, too |
| ``fit``, ``old_fit`` | other form | ``sbert.Trainer(model, rows, loss, config).fit()`` |
| ``tokenize``, ``preprocess``, ``get_sentence_features`` | other form | ``tokenize(texts)`` gives a ``sbert.TokenBatch``, without padding |
| ``smart_batching_collate`` | not here | the trainer takes rows of texts |
| ``processor`` | other name | ``tokenizer`` |
| ``transformers_model``, ``config`` | other form | ``model[0].auto_model`` and its ``config`` |
| ``SUPPORTED_SIMILARITY_FN_NAMES`` | other name | ``sbert.functional.SIMILARITIES`` |
| ``add_adapter``, ``load_adapter``, ``delete_adapter``, ``set_adapter``, ``enable_adapters``, ``disable_adapters``, ``active_adapter``, ``active_adapters``, ``get_adapter_state_dict`` | other form | methods of ``model[0].auto_model``; a folder with an adapter loads as it is |
| ``has_peft_compatible_model``, ``check_peft_compatible_model`` | not here | every transformer takes an adapter |
| ``gradient_checkpointing_enable`` | other form | ``sbert.TrainingConfig(chunk_tokens=4096)`` trains large batches in the memory of one chunk |
| ``merge`` | not here | average the tensors of ``state_dict()`` yourself |
| ``get_backend``, ``backend`` | not here | models run in torch |
| ``get_model_kwargs``, ``module_kwargs`` | not here | a module has one input and no further arguments |
| ``modalities``, ``supports``, ``is_singular_input`` | not here | texts only |
| ``model_card_data``, ``model_card_data_class`` | not here | edit the README.md of the saved folder |
| ``trust_remote_code`` | not here | code from model folders is never run |
| ``clear_placement_cache``, ``is_hpu_graph_enabled``, ``model_type``, ``default_huggingface_organization`` | not here | internal |

## util

Results are arrays instead of lists of dicts: ``hits.indices`` and ``hits.scores``, both (queries, top_k).

| ``sentence_transformers.util`` | how | here |
|---|---|---|
| ``cos_sim``, ``dot_score`` | same | ``sbert.functional.cos_sim``; NumPy arrays for NumPy arrays |
| ``euclidean_sim``, ``manhattan_sim`` | other name | ``sbert.functional.euclidean``, ``sbert.functional.manhattan`` |
| ``pytorch_cos_sim`` | other name | ``sbert.functional.cos_sim`` |
| ``pairwise_cos_sim``, ``pairwise_dot_score``, ``pairwise_euclidean_sim``, ``pairwise_manhattan_sim`` | other form | ``sbert.functional.pairwise_similarity(a, b, "cosine")``, "dot", "euclidean", "manhattan" |
| ``pairwise_angle_sim`` | not here | it is inside ``sbert.losses.AnglELoss`` |
| ``semantic_search``, ``information_retrieval`` | other form | ``sbert.search.semantic_search(queries, corpus, top_k=10)`` gives arrays |
| ``paraphrase_mining`` | other form | ``sbert.search.paraphrase_mining(model, sentences)`` gives arrays |
| ``paraphrase_mining_embeddings`` | other form | ``sbert.search.paraphrase_mining(vectors)`` |
| ``community_detection`` | same | ``sbert.search.community_detection(vectors, threshold=0.75, min_community_size=10)`` |
| ``mine_hard_negatives`` | other form | ``sbert.search.mine_hard_negatives(model, pairs, corpus)`` takes and gives rows; its docstring has the differences |
| ``quantize_embeddings`` | other form | ``sbert.search.quantize(vectors, "int8", ranges)``, with ranges of ``sbert.search.calibrate``; no "uint8" |
| ``truncate_embeddings`` | other name | ``sbert.functional.truncate`` |
| ``normalize_embeddings`` | other name | ``sbert.functional.directions`` |
| ``SimilarityFunction`` | other form | names: "cosine", "dot", "euclidean", "manhattan" |
| ``similarity_fct_name`` | not here | a similarity is its name |
| ``batch_to_device``, ``get_device_name`` | other form | ``device=`` of the model; a ``sbert.TokenBatch`` has ``to(device)`` |
| ``all_gather``, ``all_gather_padded``, ``all_gather_with_grad``, ``get_rank``, ``get_world_size``, ``is_dist_initialized`` | other form | ``sbert.training.Ranks``: the trainer gathers for every loss |
| ``LoggingHandler`` | other form | any handler of Python's ``logging`` |
| ``install_logger``, ``disable_logging``, ``disabled_tqdm`` | not here | nothing is logged; bars are shown with ``show_progress_bar=True`` |
| ``http_get``, ``load_dir_path``, ``load_file_path``, ``is_sentence_transformer_model`` | not here | the encoder takes a folder or a name on the hub |
| ``resolve_ids`` | not here | replace the ids by the texts before training |
| ``check_package_availability``, ``check_version_requirements``, ``is_accelerate_available``, ``is_datasets_available``, ``is_training_available``, ``disable_datasets_caching`` | not here | training needs neither accelerate nor datasets |
| ``fullname``, ``import_from_string``, ``import_module_class``, ``save_to_hub_args_decorator``, ``append_to_last_row``, ``check_teacher_targets``, ``ORIGINAL_TRANSFORMER_MODELS`` | not here | internal |
| ``_convert_to_tensor``, ``_convert_to_batch``, ``_convert_to_batch_tensor``, ``_move_tensors_to_cpu``, ``stack_padded_token_embeddings``, ``cat_padded_token_embeddings``, ``repad_flattened_features`` | not here | internal: batches have no padding here |
| ``compute_count_vector``, ``select_max_active_dims``, ``to_scipy_coo`` | not here | for sparse vectors |
| ``maxsim``, ``maxsim_pairwise``, ``mean_maxsim``, ``mean_maxsim_pairwise`` | not here | for several vectors per text |

## losses

A loss here never sees a model: leave the first argument out. ``temperature`` is 1 / ``scale``, and a distance or
a similarity is given by its name.

| ``sentence_transformers.losses`` | how | here |
|---|---|---|
| ``MultipleNegativesRankingLoss`` | same | ``sbert.losses.MultipleNegativesRankingLoss(temperature=0.05)`` |
| ``CachedMultipleNegativesRankingLoss`` | other form | the same loss with ``sbert.TrainingConfig(chunk_tokens=4096)``, which works for every loss |
| ``MultipleNegativesSymmetricRankingLoss`` | other form | ``sbert.losses.MultipleNegativesRankingLoss(symmetric=True)`` |
| ``CachedMultipleNegativesSymmetricRankingLoss`` | other form | the same, with ``chunk_tokens`` |
| ``GISTEmbedLoss`` | other form | ``sbert.losses.MultipleNegativesRankingLoss(temperature=0.01, contrast=("anchor-anchor", "positive-positive"))`` with ``guide=`` of ``sbert.Trainer`` |
| ``CachedGISTEmbedLoss`` | other form | the same, with ``chunk_tokens`` |
| ``CosineSimilarityLoss``, ``CoSENTLoss``, ``AnglELoss`` | same | |
| ``SoftmaxLoss`` | same | ``sbert.losses.SoftmaxLoss(dim, classes)`` |
| ``TripletLoss`` | same | ``sbert.losses.TripletLoss(margin=5)``: the default here is the paper's margin, 1 |
| ``ContrastiveLoss``, ``OnlineContrastiveLoss`` | same | |
| ``BatchAllTripletLoss``, ``BatchHardTripletLoss``, ``BatchSemiHardTripletLoss`` | same | |
| ``BatchHardSoftMarginTripletLoss`` | other form | ``sbert.losses.BatchHardTripletLoss(margin=None)`` |
| ``MSELoss``, ``MarginMSELoss``, ``DistillKLDivLoss`` | same | |
| ``MatryoshkaLoss`` | same | ``sbert.losses.MatryoshkaLoss(loss, dims)`` |
| ``TripletDistanceMetric``, ``SiameseDistanceMetric``, ``BatchHardTripletLossDistanceFunction`` | other form | names: "cosine", "euclidean", "manhattan" |
| ``EmbedDistillLoss`` | other form | ``sbert.losses.EmbeddingDistillationLoss(dim, teacher_dim)`` |
| ``AdaptiveLayerLoss`` | same | ``sbert.losses.AdaptiveLayerLoss(loss, layers)``, with an encoder that returns all layers |
| ``Matryoshka2dLoss`` | other form | ``sbert.losses.AdaptiveLayerLoss(sbert.losses.MatryoshkaLoss(loss, dims), layers)`` |
| ``DenoisingAutoEncoderLoss`` | other form | TSDAE, with a decoder, is fifteen lines in the guide of ``sbert.losses`` |
| ``ContrastiveTensionLoss``, ``ContrastiveTensionLossInBatchNegatives``, ``ContrastiveTensionDataLoader`` | other form | ``sbert.losses.ContrastiveTensionLoss()``, with negatives from the batch and an encoder that returns both models' vectors |
| ``MegaBatchMarginLoss`` | same | |
| ``GlobalOrthogonalRegularizationLoss`` | same | |

## Training

| ``sentence_transformers`` | how | here |
|---|---|---|
| ``SentenceTransformer`` | other name | ``sbert.SentenceEncoder`` |
| ``CrossEncoder`` | same | ``sbert.CrossEncoder`` |
| ``SentenceTransformerTrainer``, ``CrossEncoderTrainer`` | other form | ``sbert.Trainer(model, rows, loss, config, evaluator=evaluator)`` |
| ``SentenceTransformerTrainingArguments``, ``CrossEncoderTrainingArguments`` | other form | ``sbert.TrainingConfig(output="folder", epochs=1, batch_size=16)`` |
| ``InputExample`` | other form | a tuple of texts with the label last, or a dict |
| ``BatchSamplers`` | other form | ``sbert.TrainingConfig(sampler="no_duplicates")``, "group_by_label" |
| ``MultiDatasetBatchSamplers`` | other form | ``sbert.TrainingConfig(mix="proportional")``, "round_robin" |
| ``DefaultBatchSampler``, ``MultiDatasetDefaultBatchSampler`` | other form | ``sampler=`` may be a function from rows to batches |
| ``SentenceTransformerDataCollator``, ``CrossEncoderDataCollator`` | not here | the trainer takes rows of texts |
| ``SentencesDataset``, ``SentenceLabelDataset``, ``NoDuplicatesDataLoader`` | other form | rows, and ``sbert.TrainingConfig(sampler="no_duplicates")`` or "group_by_label" |
| ``ParallelSentencesDataset`` | other form | rows (text, translation, vector of the teacher) for ``sbert.losses.MSELoss`` |
| ``DenoisingAutoEncoderDataset`` | other form | a method ``collate`` of the loss, as the guide of ``sbert.losses`` shows |
| ``mine_hard_negatives``, ``quantize_embeddings``, ``LoggingHandler``, ``SimilarityFunction`` | other form | see util |
| ``resolve_ids`` | not here | replace the ids by the texts before training |
| ``SentenceTransformerModelCardData``, ``CrossEncoderModelCardData`` | not here | edit the README.md of the saved folder |
| ``export_optimized_onnx_model``, ``export_dynamic_quantized_onnx_model``, ``export_static_quantized_openvino_model`` | not here | ``sbert export`` writes models for other runtimes |

## evaluation

An evaluator is called with the model and gives a dict of figures, whose names have no prefix.

| ``sentence_transformers.evaluation`` | how | here |
|---|---|---|
| ``EmbeddingSimilarityEvaluator`` | other name | ``sbert.evaluation.SimilarityEvaluator(first, second, scores)`` |
| ``BinaryClassificationEvaluator`` | other name | ``sbert.evaluation.PairClassificationEvaluator(first, second, labels)`` |
| ``InformationRetrievalEvaluator`` | other name | ``sbert.evaluation.RetrievalEvaluator(queries, corpus, relevant)`` |
| ``RerankingEvaluator`` | same | ``sbert.evaluation.RerankingEvaluator(samples, k=10)`` |
| ``TripletEvaluator``, ``TranslationEvaluator`` | same | |
| ``ParaphraseMiningEvaluator`` | other form | ``sbert.evaluation.ParaphraseMiningEvaluator(sentences, duplicates)``, with row numbers instead of ids |
| ``LabelAccuracyEvaluator`` | other form | ``sbert.evaluation.LabelEvaluator(first, second, labels, loss)`` |
| ``SequentialEvaluator`` | other form | ``sbert.evaluation.SequentialEvaluator({"one": one, "two": two})`` |
| ``SimilarityFunction`` | other form | names: "cosine", "dot", "euclidean", "manhattan" |
| ``BaseEvaluator``, ``SentenceEvaluator`` | other form | ``sbert.evaluation.Evaluator``: a class with one method |
| ``MSEEvaluator`` | other form | ``sbert.evaluation.MSEEvaluator(source, teacher, target)``, whose error is not multiplied by 100 |
| ``MSEEvaluatorFromDataFrame`` | not here | one ``sbert.evaluation.MSEEvaluator(source, teacher, target)`` for each column of translations |
| ``NanoBEIREvaluator`` | other form | ``sbert.evaluation.NanoBEIRSuite(folder)``, with a folder in the hub's layout |

## models

| ``sentence_transformers.models`` | how | here |
|---|---|---|
| ``Transformer``, ``Normalize``, ``Dropout``, ``LayerNorm``, ``LSTM`` | same | |
| ``Pooling`` | other form | ``sbert.Pooling("mean")``: it takes its dimension from the vectors |
| ``Dense`` | other form | ``sbert.Dense(in_features, out_features, activation="Tanh")``: the activation by its name in torch |
| ``WordEmbeddings`` | other form | ``sbert.WordEmbeddings.from_text_file(path)`` |
| ``StaticEmbedding`` | other form | ``sbert.StaticEmbedding(tokenizer, weights)`` |
| ``Module``, ``InputModule`` | other form | any module of torch, with ``sbert.register_module`` |
| ``WeightedLayerPooling`` | not here | pooling sees the last layer |
| ``BoW``, ``CNN``, ``WordWeights`` | not here | little used |
| ``Router``, ``Asym`` | not here | use two encoders |
| ``CLIPModel`` | not here | reads images |

## readers

| ``sentence_transformers.readers`` | how | here |
|---|---|---|
| ``InputExample`` | other form | a tuple of texts with the label last, or a dict |
| ``STSDataReader``, ``STSBenchmarkDataReader`` | other form | ``sbert.data.read_sts``: dicts instead of examples |
| ``NLIDataReader`` | other form | ``sbert.data.read_nli`` |
| ``TripletReader`` | other form | ``sbert.data.read_rows`` |
| ``LabelSentenceReader`` | other form | ``sbert.data.read_rows`` |
| ``PairedFilesReader`` | other form | ``zip(sbert.data.read_texts(one), sbert.data.read_texts(other))`` |

## CrossEncoder: constructor

| sentence-transformers | how | here, in ``sbert.CrossEncoder`` |
|---|---|---|
| ``model_name_or_path``, ``device``, ``revision``, ``token``, ``cache_folder``, ``local_files_only`` | same | |
| ``processor_kwargs``, ``config_kwargs`` | same | |
| ``num_labels`` | other name | ``classes``; ``num_labels=`` is understood, too |
| ``max_length`` | other name | ``max_seq_length``; ``max_length=`` is understood, too |
| ``activation_fn`` | other name | ``activation``; ``activation_fn=`` is understood, too |
| ``model_kwargs`` | other form | takes the dtype and the implementation of attention |
| ``prompts``, ``default_prompt_name`` | same | before the first text of a pair |
| ``modules`` | not here | it loads models for sequence classification of transformers |
| ``trust_remote_code``, ``backend``, ``model_card_data``, ``keep_in_fp32_modules`` | not here | only their defaults, as above |

## CrossEncoder: predict and rank

| sentence-transformers | how | here |
|---|---|---|
| ``inputs`` | other name | ``pairs``, by position |
| ``query``, ``documents``, ``top_k``, ``return_documents`` | same | |
| ``batch_size``, ``show_progress_bar``, ``convert_to_numpy``, ``convert_to_tensor``, ``apply_softmax`` | same | ``apply_softmax`` in ``predict`` |
| ``activation_fn`` | other name | ``activation``; ``activation_fn=`` is understood, too |
| ``prompt_name``, ``prompt`` | same | both at once are an error |
| ``device`` | other form | ``scorer.to(device)`` before |
| ``pool``, ``chunk_size`` | same | the processes of ``scorer.pool(devices)`` |

## CrossEncoder: methods and attributes

| sentence-transformers | how | here |
|---|---|---|
| ``predict``, ``rank`` | same | |
| ``num_labels``, ``max_length``, ``max_seq_length``, ``activation_fn``, ``device``, ``dtype`` | same | |
| ``save``, ``save_pretrained``, ``push_to_hub``, ``save_to_hub``, ``evaluate`` | same | |
| ``fit``, ``old_fit`` | other form | ``sbert.CrossEncoder.fit(rows)`` takes rows of two texts and a label |
| ``model``, ``transformers_model``, ``config`` | other name | ``auto_model`` and ``auto_model.config`` |
| ``tokenizer`` | same | |
| ``processor`` | other name | ``tokenizer`` |
| ``tokenize``, ``preprocess`` | not here | ``predict`` reads pairs of texts |
| ``get_max_seq_length`` | other name | ``max_seq_length`` |
| ``default_activation_function``, ``get_default_activation_fn`` | other name | ``activation`` |
| ``smart_batching_collate``, ``smart_batching_collate_text_only`` | not here | the trainer takes rows of texts |
| ``start_multi_process_pool``, ``stop_multi_process_pool`` | other form | ``with scorer.pool(devices) as pool:`` |
| ``append``, ``extend``, ``insert``, ``pop`` | not here | it is one model, not a chain of modules |
| ``add_adapter``, ``load_adapter``, ``delete_adapter``, ``set_adapter``, ``enable_adapters``, ``disable_adapters``, ``active_adapter``, ``active_adapters``, ``get_adapter_state_dict``, ``has_peft_compatible_model``, ``check_peft_compatible_model`` | not here | adapters are for ``sbert.SentenceEncoder`` |
| ``gradient_checkpointing_enable`` | other form | ``sbert.TrainingConfig(chunk_tokens=4096)`` |
| ``prompts``, ``default_prompt_name`` | same | |
| ``keep_in_fp32_modules``, ``set_keep_in_fp32_modules`` | not here | pass ``dtype="float32"`` |
| ``merge`` | not here | average the tensors of ``state_dict()`` yourself |
| ``get_backend``, ``backend``, ``get_model_kwargs``, ``module_kwargs``, ``modalities``, ``supports``, ``is_singular_input``, ``model_card_data``, ``model_card_data_class``, ``trust_remote_code``, ``clear_placement_cache``, ``is_hpu_graph_enabled``, ``model_type``, ``default_huggingface_organization`` | not here | for the reasons above |

## CrossEncoder: losses

| ``sentence_transformers.cross_encoder.losses`` | how | here |
|---|---|---|
| ``BinaryCrossEntropyLoss`` | same | |
| ``CrossEntropyLoss`` | same | ``sbert.losses.CrossEntropyLoss(classes)`` |
| ``MSELoss`` | other name | ``sbert.losses.SquaredErrorLoss`` |
| ``MultipleNegativesRankingLoss``, ``CachedMultipleNegativesRankingLoss`` | other name | ``sbert.losses.LocalizedContrastiveLoss(in_batch=...)``, with ``chunk_tokens=`` for little memory |
| ``MarginMSELoss`` | other name | ``sbert.losses.ScoreMarginMSELoss`` |
| ``LambdaLoss``, ``RankNetLoss``, ``ListNetLoss``, ``ListMLELoss`` | other form | those of ``sbert.losses``, which take no model; a row is a query, a list of documents and a list of labels |
| ``PListMLELoss``, ``PListMLELambdaWeight`` | other form | ``sbert.losses.ListMLELoss(position_aware=True)`` |
| ``NoWeightingScheme``, ``NDCGLoss1Scheme``, ``NDCGLoss2Scheme``, ``NDCGLoss2PPScheme``, ``LambdaRankScheme`` | other form | ``sbert.losses.LambdaLoss(weighting)`` by name |
| ``ADRMSELoss`` | not here | a function ``loss(*scores, labels)`` of your own |

## CrossEncoder: evaluation

| ``sentence_transformers.cross_encoder.evaluation`` | how | here |
|---|---|---|
| ``CrossEncoderCorrelationEvaluator``, ``CECorrelationEvaluator`` | other name | ``sbert.evaluation.SimilarityEvaluator`` |
| ``CrossEncoderRerankingEvaluator``, ``CERerankingEvaluator`` | other name | ``sbert.evaluation.RerankingEvaluator``, where positives that are not among ``documents`` count as missed |
| ``CrossEncoderClassificationEvaluator``, ``CEBinaryClassificationEvaluator``, ``CEBinaryAccuracyEvaluator`` | other name | ``sbert.evaluation.PairClassificationEvaluator`` |
| ``CESoftmaxAccuracyEvaluator``, ``CEF1Evaluator`` | other form | ``sbert.evaluation.LabelEvaluator(first, second, labels)``: accuracy and macro F1 of several classes |
| ``CrossEncoderNanoBEIREvaluator`` | other form | ``sbert.evaluation.NanoBEIRSuite(folder, rerank=100)``; relevant documents that BM25 missed count as not found |

## Arguments of the other methods

Of both classes: ``save``, ``push_to_hub``, ``similarity``, ``evaluate``, ``fit`` and so on.

| sentence-transformers | how | here |
|---|---|---|
| ``path``, ``create_model_card``, ``repo_id``, ``token``, ``private``, ``commit_message``, ``revision`` | same | |
| ``model_name`` | other name | ``name``; ``model_name=`` is understood, too |
| ``safe_serialization``, ``train_datasets``, ``local_model_path``, ``exist_ok``, ``replace_model_card``, ``create_pr`` | not here | only their defaults; any other value is an error that says what to do |
| ``organization`` | not here | write it into ``repo_id``: "organization/name" |
| ``embeddings1``, ``embeddings2`` | other name | ``a``, ``b``: pass them by position |
| ``truncate_dim``, ``include_prompt``, ``target_devices``, ``pool``, ``sentences``, ``chunk_size`` | same | |
| ``prompt_name``, ``prompt``, ``batch_size``, ``show_progress_bar``, ``precision``, ``normalize_embeddings`` | same | of ``encode_multi_process``: as in ``encode`` |
| ``evaluator``, ``output_path`` | same | |
| ``index``, ``module``, ``sequential``, ``key`` | same | by position, as in a Sequential of torch |
| ``input_path``, ``texts``, ``inputs`` | other form | by position |
| ``train_objectives``, ``train_dataloader``, ``loss_fct`` | other form | ``sbert.Trainer(model, rows, loss, config)``: rows and a loss, without a data loader |
| ``epochs``, ``weight_decay`` | same | in ``sbert.TrainingConfig`` |
| ``steps_per_epoch`` | other form | ``sbert.TrainingConfig(steps=1000)``: in all |
| ``warmup_steps`` | other form | ``sbert.TrainingConfig(warmup=0.1)``: a fraction |
| ``optimizer_params`` | other form | ``sbert.TrainingConfig(learning_rate=2e-5)`` |
| ``max_grad_norm`` | other name | ``sbert.TrainingConfig(max_gradient_norm=1.0)`` |
| ``evaluation_steps`` | other name | ``sbert.TrainingConfig(evaluate_every=500)`` |
| ``use_amp`` | other form | ``sbert.TrainingConfig(dtype="bfloat16")`` |
| ``checkpoint_path``, ``save_best_model`` | other form | ``sbert.TrainingConfig(output="folder")`` has checkpoints, and ``best`` if there is an evaluator |
| ``checkpoint_save_steps`` | other name | ``sbert.TrainingConfig(checkpoint_every=500)`` |
| ``checkpoint_save_total_limit`` | other name | ``sbert.TrainingConfig(keep=2)`` |
| ``resume_from_checkpoint`` | other form | ``fit(resume=True)`` |
| ``scheduler``, ``optimizer_class``, ``activation_fct``, ``callback`` | not here | AdamW, linear warm-up and linear decay; ``history.jsonl`` has the progress |
| ``models``, ``method``, ``base_model``, ``parameters``, ``dtype``, ``out_dtype``, ``device``, ``batch_options`` | not here | arguments of ``merge`` |
| ``batch``, ``gradient_checkpointing_kwargs``, ``modality``, ``module_names`` | not here | their methods are not here |

## What is run in both libraries

160 pieces of scripts for sentence-transformers, of one to eight statements besides the imports, are run with both
libraries, and the results are compared to 1e-5: what a call returns, and the vectors of a model after training.
158 give the same. The others:

| piece | why |
|---|---|
| ``pairwise_angle_sim`` | the angle is computed inside ``AnglELoss``, and there is no function for it |
| ``quantize_embeddings to uint8`` | int8 takes as many bytes and has the same precision |

Some names have a counterpart in the tables and are not in the package of their names, so a script has to be edited
there: ``all_gather``, ``all_gather_padded``, ``all_gather_with_grad``, ``get_rank``, ``get_world_size``,
``is_dist_initialized``, ``EmbedDistillLoss``, ``AdaptiveLayerLoss``, ``Matryoshka2dLoss``,
``DenoisingAutoEncoderLoss``, ``ContrastiveTensionLoss``, ``ContrastiveTensionLossInBatchNegatives``,
``ContrastiveTensionDataLoader``, ``MegaBatchMarginLoss``, ``GlobalOrthogonalRegularizationLoss``,
``DenoisingAutoEncoderDataset``, ``LambdaLoss``, ``RankNetLoss``, ``ListNetLoss``, ``ListMLELoss``, ``PListMLELoss``,
``PListMLELambdaWeight``, ``NoWeightingScheme``, ``NDCGLoss1Scheme``, ``NDCGLoss2Scheme``, ``NDCGLoss2PPScheme``,
``LambdaRankScheme``, a cross-encoder's ``MultipleNegativesRankingLoss``, ``CachedMultipleNegativesRankingLoss`` and
``MarginMSELoss``, ``Module``, ``InputModule``,
``DefaultBatchSampler``, ``MultiDatasetDefaultBatchSampler``, ``ParallelSentencesDataset``, ``STSDataReader``,
``STSBenchmarkDataReader``, ``NLIDataReader``, ``TripletReader``, ``LabelSentenceReader``, ``PairedFilesReader``,
``CEBinaryAccuracyEvaluator``, ``CESoftmaxAccuracyEvaluator``, ``CEF1Evaluator``, ``CrossEncoderNanoBEIREvaluator``.

## Out of scope

| sentence-transformers | how | here |
|---|---|---|
| ``SparseEncoder*`` | not here | Sparse encoders give one weight per word of a vocabulary; search engines index those, and this library has dense vectors. |
| ``MultiVectorEncoder*`` | not here | Multi-vector models keep one vector per token of each document, which takes an index of another kind. |

Models of images, audio and video are not loaded: this library reads texts.
"""  # noqa: E501
